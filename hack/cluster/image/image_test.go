package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/hack/cluster/image"
)

var _ = Describe("Image", func() {
	var binary string

	BeforeEach(func() {
		binary = filepath.Join(GinkgoT().TempDir(), "manager")
		Expect(os.WriteFile(binary, []byte("a program"), 0o700)).To(Succeed())
	})

	It("is a layout in which every blob is found by its digest", func() {
		files := entries(write(image.Image{Name: "portero.dev/manager:dev", Binary: binary, User: "65532:65532", Ports: []int{8080}}))

		index := files.read("index.json")
		Expect(index).To(HaveKeyWithValue("schemaVersion", BeNumerically("==", 2)))
		manifest := index["manifests"].([]any)[0].(map[string]any)
		Expect(manifest["annotations"]).To(HaveKeyWithValue("io.containerd.image.name", "portero.dev/manager:dev"))

		content := files.blob(manifest)
		config := files.blob(content["config"].(map[string]any))
		Expect(config["config"]).To(And(
			HaveKeyWithValue("User", "65532:65532"),
			HaveKeyWithValue("Entrypoint", ConsistOf("/manager")),
			HaveKeyWithValue("ExposedPorts", HaveKey("8080/tcp"))))

		layer := content["layers"].([]any)[0].(map[string]any)
		Expect(config["rootfs"]).To(HaveKeyWithValue("diff_ids", ConsistOf(layer["digest"])), "an uncompressed layer is its own diff")
		Expect(entries(files[blobPath(layer)])).To(HaveKeyWithValue("manager", []byte("a program")))
	})

	It("gives equal bytes for equal binaries, whenever and as whatever they were built", func() {
		first := write(image.Image{Name: "portero.dev/manager:dev", Binary: binary})
		Expect(os.Chmod(binary, 0o755)).To(Succeed())
		Expect(os.Chtimes(binary, time.Unix(0, 0), time.Unix(0, 0))).To(Succeed())
		Expect(write(image.Image{Name: "portero.dev/manager:dev", Binary: binary})).To(Equal(first))
	})

	It("names the binary that it could not read", func() {
		err := image.Image{Name: "x", Binary: binary + "-missing"}.Write(io.Discard)
		Expect(err).To(And(MatchError(ContainSubstring("manager-missing")), MatchError(os.ErrNotExist)))
	})
})

func write(img image.Image) []byte {
	GinkgoHelper()
	var out bytes.Buffer
	Expect(img.Write(&out)).To(Succeed())
	return out.Bytes()
}

// layout is the content of a tar by name.
type layout map[string][]byte

func entries(archive []byte) layout {
	GinkgoHelper()
	files := layout{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		files[header.Name], err = io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
	}
}

func (l layout) read(name string) map[string]any {
	GinkgoHelper()
	Expect(l).To(HaveKey(name))
	var value map[string]any
	Expect(json.Unmarshal(l[name], &value)).To(Succeed())
	return value
}

// blob follows a descriptor and holds it to its digest and size.
func (l layout) blob(descriptor map[string]any) map[string]any {
	GinkgoHelper()
	name := blobPath(descriptor)
	Expect(fmt.Sprintf("sha256:%x", sha256.Sum256(l[name]))).To(Equal(descriptor["digest"]))
	Expect(descriptor["size"]).To(BeNumerically("==", len(l[name])))
	return l.read(name)
}

func blobPath(descriptor map[string]any) string {
	return "blobs/sha256/" + strings.TrimPrefix(descriptor["digest"].(string), "sha256:")
}
