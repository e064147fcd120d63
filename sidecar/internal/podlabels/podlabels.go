// Package podlabels reads a pod's labels from the file that the downward API writes. An environment variable would never
// change; the file follows the pod.
//
// The sidecar's wiring imports it. It is a leaf.
package podlabels

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Read reads the labels in file. No file means no labels: outside Kubernetes there is none.
func Read(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod's labels: %w", err)
	}
	labels, err := Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("read the pod's labels: %s: %w", file, err)
	}
	return labels, nil
}

// Parse parses lines of key="value", with the value quoted as Go quotes strings.
func Parse(content string) (map[string]string, error) {
	labels := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(content)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		key, quoted, found := strings.Cut(line, "=")
		value, err := strconv.Unquote(quoted)
		if !found || err != nil {
			return nil, fmt.Errorf("line %q is not key=\"value\"", line)
		}
		labels[key] = value
	}
	return labels, nil
}
