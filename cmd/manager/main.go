// The manager is Portero's control plane.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/portero-dev/portero/cmd/manager/app"
)

func main() {
	os.Exit(app.Main(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
}
