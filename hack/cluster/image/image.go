// Package image writes a container image that is one static binary, without a container engine and without a registry: a tar of an
// OCI image layout. Only the development cluster uses it, through the pack command; releases are built from the Dockerfile.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// Media types and annotations of the OCI image specification v1.1 that this writer needs.
const (
	mediaTypeIndex    = "application/vnd.oci.image.index.v1+json"
	mediaTypeManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaTypeConfig   = "application/vnd.oci.image.config.v1+json"
	mediaTypeLayer    = "application/vnd.oci.image.layer.v1.tar"
	// annotationName is what containerd's importer names the image by.
	annotationName = "io.containerd.image.name"
)

// Image is one binary with what a container runtime has to know about it.
type Image struct {
	// Name is the full reference, such as portero.dev/manager:dev.
	Name string
	// Binary is the path of the static binary; it becomes /<its base name>, the entry point.
	Binary string
	// User is uid:gid, numeric, because the image has no user database.
	User string
	// Ports are the TCP ports that the image says it serves.
	Ports []int
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

type runConfig struct {
	User         string              `json:"User"`
	Entrypoint   []string            `json:"Entrypoint"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type imageConfig struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

// blobs collects the content-addressed files of a layout.
type blobs struct {
	order   []string
	content map[string][]byte
}

func (b *blobs) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	if b.content == nil {
		b.content = map[string][]byte{}
	}
	if _, ok := b.content[digest]; !ok {
		b.order = append(b.order, digest)
	}
	b.content[digest] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: int64(len(content))}
}

func (b *blobs) addJSON(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, fmt.Errorf("encode %s: %w", mediaType, err)
	}
	return b.add(mediaType, content), nil
}

// Write writes the image as a tar of an OCI image layout. Equal binaries give equal bytes: no time or owner of this machine gets in.
func (i Image) Write(out io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	var store blobs
	layerDescriptor := store.add(mediaTypeLayer, layer)
	config := imageConfig{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config:       runConfig{User: i.User, Entrypoint: []string{i.entrypoint()}, ExposedPorts: i.exposedPorts()},
		RootFS:       rootFS{Type: "layers", DiffIDs: []string{layerDescriptor.Digest}},
	}
	configDescriptor, err := store.addJSON(mediaTypeConfig, config)
	if err != nil {
		return err
	}
	manifestDescriptor, err := store.addJSON(mediaTypeManifest, manifest{
		SchemaVersion: 2, MediaType: mediaTypeManifest,
		Config: &configDescriptor, Layers: []descriptor{layerDescriptor},
	})
	if err != nil {
		return err
	}
	manifestDescriptor.Annotations = map[string]string{annotationName: i.Name}
	index, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaTypeIndex, Manifests: []descriptor{manifestDescriptor}})
	if err != nil {
		return fmt.Errorf("encode index: %w", err)
	}
	return writeLayout(out, index, store)
}

func writeLayout(out io.Writer, index []byte, store blobs) error {
	archive := tar.NewWriter(out)
	if err := addFile(archive, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := addFile(archive, "index.json", 0o644, index); err != nil {
		return err
	}
	for _, digest := range store.order {
		if err := addFile(archive, "blobs/sha256/"+digest, 0o644, store.content[digest]); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("close image layout: %w", err)
	}
	return nil
}

func (i Image) entrypoint() string { return "/" + filepath.Base(i.Binary) }

func (i Image) exposedPorts() map[string]struct{} {
	ports := make(map[string]struct{}, len(i.Ports))
	for _, port := range i.Ports {
		ports[fmt.Sprintf("%d/tcp", port)] = struct{}{}
	}
	return ports
}

// layer is a tar that holds nothing but the binary.
func (i Image) layer() ([]byte, error) {
	content, err := os.ReadFile(i.Binary)
	if err != nil {
		return nil, fmt.Errorf("read binary: %w", err)
	}
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	if err := addFile(archive, i.entrypoint()[1:], 0o755, content); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("close layer: %w", err)
	}
	return buffer.Bytes(), nil
}

func addFile(archive *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), Format: tar.FormatUSTAR}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return nil
}
