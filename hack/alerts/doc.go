// Package alerts holds the alert rules of config/prometheus against what the binaries expose. It has only tests.
package alerts
