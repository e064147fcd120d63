package credentials_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/sidecar/internal/credentials"
)

// secret is the Secret's content with changes; an empty value removes the key.
func secret(changes map[string]string) map[string]string {
	files := map[string]string{
		sidecarenv.SecretAddrs:     "redis-0:6379,redis-1:6379",
		sidecarenv.SecretUsername:  "portero-a-shop",
		sidecarenv.SecretPassword:  "p4ss",
		sidecarenv.SecretInstance:  "a1b2c3d4",
		sidecarenv.SecretKeySecret: strings.Repeat("k", 32),
	}
	maps.Copy(files, changes)
	return files
}

// mount writes a version of the Secret as kubelet does: a folder per version, and a link that is swapped.
func mount(dir, version string, files map[string]string) {
	GinkgoHelper()
	folder := filepath.Join(dir, "..version_"+version)
	Expect(os.Mkdir(folder, 0o755)).To(Succeed())
	for name, content := range files {
		if content != "" {
			Expect(os.WriteFile(filepath.Join(folder, name), []byte(content), 0o444)).To(Succeed())
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	Expect(os.Symlink(filepath.Base(folder), link)).To(Succeed())
	Expect(os.Rename(link, filepath.Join(dir, "..data"))).To(Succeed())
}

var _ = Describe("Read", func() {
	It("reads what kubelet mounts", func() {
		dir := GinkgoT().TempDir()
		mount(dir, "1", secret(map[string]string{sidecarenv.SecretCA: "PEM"}))
		Expect(credentials.Read(dir)).To(Equal(&credentials.Credentials{
			Addrs:     []string{"redis-0:6379", "redis-1:6379"},
			Username:  "portero-a-shop",
			Password:  "p4ss",
			Instance:  "a1b2c3d4",
			KeySecret: []byte(strings.Repeat("k", 32)),
			CA:        []byte("PEM"),
		}))
	})

	It("reads files written by hand, with line ends", func() {
		dir := GinkgoT().TempDir()
		for name, content := range secret(nil) {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600)).To(Succeed())
		}
		read, err := credentials.Read(dir)
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Password).To(Equal("p4ss"))
		Expect(read.Addrs).To(HaveLen(2))
	})

	It("says that they are missing when there is no folder, or an empty one", func() {
		_, err := credentials.Read(GinkgoT().TempDir())
		Expect(err).To(MatchError(credentials.ErrMissing))
		_, err = credentials.Read("/does/not/exist")
		Expect(err).To(MatchError(credentials.ErrMissing))
	})

	DescribeTable("refuses what it can't use, naming the file and never the password",
		func(changes map[string]string, says string) {
			dir := GinkgoT().TempDir()
			mount(dir, "1", secret(changes))
			_, err := credentials.Read(dir)
			Expect(err).To(MatchError(ContainSubstring(says)))
			Expect(err).NotTo(MatchError(ContainSubstring("p4ss")))
		},
		Entry("no address", map[string]string{sidecarenv.SecretAddrs: ""}, "file addrs names no address"),
		Entry("an address without port", map[string]string{sidecarenv.SecretAddrs: "redis-0"}, `"redis-0" is not host:port`),
		Entry("no instance", map[string]string{sidecarenv.SecretInstance: ""}, "file instance"),
		Entry("a short key secret", map[string]string{sidecarenv.SecretKeySecret: "short"}, "5 bytes"),
	)
})

var _ = Describe("Watch", func() {
	It("tells of the first version, of each change, and of what is wrong, each once", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		watching, stop := context.WithCancel(ctx)
		changed := make(chan *credentials.Credentials, 10)
		policies := make(chan string, 10)
		failed := make(chan error, 10)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			credentials.Watch(watching, dir, 5*time.Millisecond, credentials.Watcher{
				Changed:  func(c *credentials.Credentials) { changed <- c },
				Policies: func(bundle []byte) { policies <- string(bundle) },
				Failed:   func(err error) { failed <- err },
			})
		}()

		Eventually(failed).Should(Receive(MatchError(credentials.ErrMissing)))
		mount(dir, "1", secret(nil))
		Eventually(changed).Should(Receive(HaveField("Password", "p4ss")))
		mount(dir, "2", secret(nil))
		Consistently(changed, "50ms").ShouldNot(Receive(), "the same content is no change")
		mount(dir, "3", secret(map[string]string{sidecarenv.SecretPassword: "other"}))
		Eventually(changed).Should(Receive(HaveField("Password", "other")))
		Expect(policies).NotTo(Receive(), "there are none")
		mount(dir, "3a", secret(map[string]string{sidecarenv.SecretPassword: "other", sidecarenv.SecretPolicies: "first"}))
		Eventually(policies).Should(Receive(Equal("first")))
		mount(dir, "3b", secret(map[string]string{sidecarenv.SecretPassword: "third", sidecarenv.SecretPolicies: "first"}))
		Eventually(changed).Should(Receive(HaveField("Password", "third")))
		Consistently(policies, "50ms").ShouldNot(Receive())
		mount(dir, "3c", secret(map[string]string{sidecarenv.SecretPassword: "third", sidecarenv.SecretPolicies: "second"}))
		Eventually(policies).Should(Receive(Equal("second")))
		Expect(changed).NotTo(Receive(), "other policies are no other connection")
		mount(dir, "4", secret(map[string]string{sidecarenv.SecretInstance: "Not An Instance"}))
		Eventually(failed).Should(Receive(MatchError(ContainSubstring("instance"))))
		Consistently(failed, "50ms").ShouldNot(Receive())
		Expect(changed).NotTo(Receive())
		mount(dir, "5", map[string]string{sidecarenv.SecretPassword: "p4ss", sidecarenv.SecretPolicies: "third"})
		Eventually(policies).Should(Receive(Equal("third")), "also of a manager that nobody told yet where Redis is")
		Eventually(failed).Should(Receive(MatchError(ContainSubstring("names no address"))))
		Expect(changed).NotTo(Receive())

		stop()
		Eventually(stopped).Should(BeClosed())
	})
})
