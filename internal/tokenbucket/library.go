// Package tokenbucket is the home of the Lua: the Redis Function library portero_v1, and the typed call of its take
// function, which decides over the shared token buckets.
//
// The manager loads the library, the sidecar calls it. The package stays free of Kubernetes and of any policy: it knows
// buckets and charges.
package tokenbucket

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/portero-dev/portero/internal/keyspace"
)

// clockFile stands first: it defines now_us, which the others use.
const clockFile = "clock.lua"

//go:embed *.lua
var files embed.FS

// Source is a Redis Function library.
type Source struct {
	// Name is the library's name; its functions are called Name_take and so on.
	Name string
	// Code is what FUNCTION LOAD takes, with the header line.
	Code string
	// Digest is the SHA-256 of Code, in hex.
	Digest string
}

// Library is the library that the manager loads on every master: all Lua files of this package under one header.
func Library() Source {
	clock, err := files.ReadFile(clockFile)
	if err != nil {
		panic(fmt.Sprintf("embedded %s: %v", clockFile, err))
	}
	return assemble(keyspace.FunctionLibrary, string(clock))
}

// assemble joins the header, the given clock and every other file. Each file keeps its names to itself in a do block;
// what they share is LIBRARY, the prefix of their functions, and now_us.
func assemble(name, clock string) Source {
	var code strings.Builder
	fmt.Fprintf(&code, "#!lua name=%s\nlocal LIBRARY = '%s'\n%s", name, name, clock)
	names, err := fs.Glob(files, "*.lua") // sorted
	if err != nil {
		panic(fmt.Sprintf("list embedded Lua files: %v", err))
	}
	for _, file := range names {
		if file == clockFile {
			continue
		}
		content, err := files.ReadFile(path.Clean(file))
		if err != nil {
			panic(fmt.Sprintf("embedded %s: %v", file, err))
		}
		code.WriteString("\n")
		code.Write(content)
	}
	sum := sha256.Sum256([]byte(code.String()))
	return Source{Name: name, Code: code.String(), Digest: hex.EncodeToString(sum[:])}
}
