// Package faults holds tests alone, which run for minutes and are built by the tag e2e; README.md tells of them.
package faults
