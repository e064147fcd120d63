// Package credentials reads the way to Redis from the Secret that the manager makes for a namespace, and watches it for
// changes: it may come after the pod, and its password rotates while the sidecar runs.
//
// The sidecar's wiring imports it. It stays free of Redis clients and of Kubernetes: a mounted Secret is a folder.
package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// ErrMissing is the answer where there is no Secret yet: the namespace has no policy and the manager was never here.
var ErrMissing = errors.New("no Redis credentials: the Secret " + sidecarenv.CredentialsName + " is not in the pod's namespace yet")

// minKeySecret is the least length of the key secret in bytes: below it, tags could be guessed.
const minKeySecret = 16

// Credentials is how a sidecar reaches Redis, and as whom.
type Credentials struct {
	Addrs     []string // host:port
	Username  string
	Password  string
	Instance  keyspace.Instance
	KeySecret []byte
	// CA, Cert and Key are PEM and optional. CA turns TLS on.
	CA, Cert, Key []byte
}

// Equal tells whether both mean the same connection and the same keys.
func (c *Credentials) Equal(other *Credentials) bool {
	return slices.Equal(c.Addrs, other.Addrs) && c.Username == other.Username && c.Password == other.Password &&
		c.Instance == other.Instance && bytes.Equal(c.KeySecret, other.KeySecret) &&
		bytes.Equal(c.CA, other.CA) && bytes.Equal(c.Cert, other.Cert) && bytes.Equal(c.Key, other.Key)
}

// Read reads the mounted Secret in dir. It answers ErrMissing when nothing is there; other errors name the file, never
// its content.
func Read(dir string) (*Credentials, error) {
	files, err := readFiles(dir)
	if err != nil {
		return nil, err
	}
	return parse(files)
}

func parse(files map[string][]byte) (c *Credentials, err error) {
	if len(files[sidecarenv.SecretAddrs]) == 0 && len(files[sidecarenv.SecretPassword]) == 0 {
		return nil, ErrMissing
	}
	c = &Credentials{
		Username:  text(files[sidecarenv.SecretUsername]),
		Password:  text(files[sidecarenv.SecretPassword]),
		KeySecret: files[sidecarenv.SecretKeySecret],
		CA:        files[sidecarenv.SecretCA],
		Cert:      files[sidecarenv.SecretCert],
		Key:       files[sidecarenv.SecretKey],
	}
	if c.Addrs, err = addrs(text(files[sidecarenv.SecretAddrs])); err != nil {
		return nil, err
	}
	if c.Instance, err = keyspace.ParseInstance(text(files[sidecarenv.SecretInstance])); err != nil {
		return nil, fmt.Errorf("credentials: file %s: %w", sidecarenv.SecretInstance, err)
	}
	if len(c.KeySecret) < minKeySecret {
		return nil, fmt.Errorf("credentials: file %s: %d bytes, at least %d are needed", sidecarenv.SecretKeySecret, len(c.KeySecret), minKeySecret)
	}
	return c, nil
}

// readFiles reads one version of the Secret. kubelet swaps the link ..data to a folder with the new version: resolving it
// once keeps a password of one version from meeting addresses of another.
func readFiles(dir string) (map[string][]byte, error) {
	if version, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = version
	}
	files := make(map[string][]byte)
	for _, name := range []string{
		sidecarenv.SecretAddrs, sidecarenv.SecretUsername, sidecarenv.SecretPassword, sidecarenv.SecretInstance,
		sidecarenv.SecretKeySecret, sidecarenv.SecretCA, sidecarenv.SecretCert, sidecarenv.SecretKey,
		sidecarenv.SecretPolicies,
	} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
		files[name] = content
	}
	return files, nil
}

// text drops the line end that files written by hand have.
func text(content []byte) string { return strings.TrimRight(string(content), "\r\n") }

func addrs(s string) ([]string, error) {
	var all []string
	for addr := range strings.SplitSeq(s, ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("credentials: file %s: %q is not host:port", sidecarenv.SecretAddrs, addr)
		}
		all = append(all, addr)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("credentials: file %s names no address: state host:port of at least one node of the Redis Cluster", sidecarenv.SecretAddrs)
	}
	return all, nil
}

// Watcher is told what a Secret holds.
type Watcher struct {
	// Changed is called for the first good version, and for each that means another connection or other keys than the last.
	Changed func(*Credentials)
	// Policies is called for the first bundle of the namespace's policies and for each that differs from the last: after Changed, before Failed.
	Policies func(bundle []byte)
	// Failed is called when what is wrong with the credentials changes.
	Failed func(error)
}

// Watch reads dir at once and then in each interval, until ctx is done. It calls the watcher from the calling goroutine.
// A Secret that vanishes or spoils is reported and leaves what was read before in force. Neither do bad credentials keep policies from being
// read, as before anybody told where Redis is, nor the other way round.
func Watch(ctx context.Context, dir string, interval time.Duration, watcher Watcher) {
	w := watch{Watcher: watcher}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		w.look(readFiles(dir))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watch remembers what the watcher was told.
type watch struct {
	Watcher
	last   *Credentials
	bundle []byte
	wrong  string
}

func (w *watch) look(files map[string][]byte, err error) {
	var read *Credentials
	if err == nil {
		read, err = parse(files)
	}
	if err == nil {
		w.wrong = ""
		if w.last == nil || !w.last.Equal(read) {
			w.last = read
			w.Changed(read)
		}
	}
	if bundle := files[sidecarenv.SecretPolicies]; len(bundle) > 0 && !bytes.Equal(bundle, w.bundle) {
		w.bundle = bundle
		w.Policies(bundle)
	}
	if err != nil && err.Error() != w.wrong {
		w.wrong = err.Error()
		w.Failed(err)
	}
}
