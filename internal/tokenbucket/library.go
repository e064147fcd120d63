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

// Revision orders the states of the library, so that managers of two versions that share a Redis agree on one: the later.
// Raise it with every change of the Lua; a later revision serves the callers of all earlier ones, or has another name.
const Revision = 4

// clockFile stands first: it defines now_us, which the others use.
const clockFile = "clock.lua"

//go:embed *.lua
var files embed.FS

// Source is a Redis Function library.
type Source struct {
	// Name is the library's name; its functions are called Name_take and so on.
	Name string
	// Code is what FUNCTION LOAD takes, with the header lines.
	Code string
	// Digest is the SHA-256 of the code below the header, in hex.
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
	var body strings.Builder
	fmt.Fprintf(&body, "local LIBRARY = '%s'\n%s", name, clock)
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
		body.WriteString("\n")
		body.Write(content)
	}
	digest := digestOf(body.String())
	code := fmt.Sprintf("#!lua name=%s\n"+revisionLine+"\n%s", name, Revision, digest, body.String())
	return Source{Name: name, Code: code, Digest: digest}
}

func digestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// revisionLine is the second line of a library: its revision and the digest of what follows.
const revisionLine = "-- revision %d %s"

// Supersedes reports whether the library is to replace one that is stored under its name: a lower revision, or code that is
// not what its own header says. Of two texts of one revision the greater digest wins. So it never holds both ways, and two
// managers never replace each other's.
func (s Source) Supersedes(stored string) bool {
	revision, digest, ok := parseHeader(stored)
	if !ok {
		return true
	}
	return Revision > revision || (Revision == revision && s.Digest > digest)
}

func parseHeader(code string) (revision int, digest string, ok bool) {
	_, rest, _ := strings.Cut(code, "\n")
	line, body, _ := strings.Cut(rest, "\n")
	_, err := fmt.Sscanf(line, revisionLine, &revision, &digest)
	return revision, digest, err == nil && digest == digestOf(body)
}
