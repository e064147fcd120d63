// Package version holds the version of this build, for both planes. It is a leaf.
package version

// Version is set by the linker.
var Version = "dev"
