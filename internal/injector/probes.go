package injector

import (
	"encoding/json"
	"strconv"
)

// Kubelet's probes and HTTP hooks must reach the app past the sidecar: they are neither limited nor counted, and they
// fail when the app is down. Under Redirect, what names a protected port is pointed at its shadow port.

// shadowProbes points probes and hooks at the shadow ports.
func shadowProbes(pod object, ports []Port) {
	to := map[int64]int32{}
	for _, p := range ports {
		to[int64(p.App)] = p.Shadow
	}
	movePorts(pod, to)
}

// unshadowProbes takes shadowProbes back. A port that was named comes back as its number, which is the same to kubelet.
func unshadowProbes(pod object, ports []Port) {
	to := map[int64]int32{}
	for _, p := range ports {
		to[int64(p.Shadow)] = p.App
	}
	movePorts(pod, to)
}

// movePorts replaces the ports of all probes and hooks of containers that are not ours.
func movePorts(pod object, to map[int64]int32) {
	spec := field(pod, "spec")
	for _, list := range []string{"containers", "initContainers"} {
		for _, e := range items(spec, list) {
			c, _ := e.(object)
			if name, _ := c["name"].(string); isOurs(name) {
				continue
			}
			for _, action := range kubeletActions(c) {
				movePort(c, action, to)
			}
		}
	}
}

// kubeletActions are the httpGet, tcpSocket and grpc objects of a container that make kubelet connect to the pod.
func kubeletActions(c object) []object {
	var actions []object
	add := func(handler object, kinds ...string) {
		for _, k := range kinds {
			// A host sends the probe elsewhere than to this pod.
			if a := field(handler, k); a != nil && (a["host"] == nil || a["host"] == "") {
				actions = append(actions, a)
			}
		}
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		add(field(c, probe), "httpGet", "tcpSocket", "grpc")
	}
	for _, hook := range []string{"postStart", "preStop"} {
		add(field(field(c, "lifecycle"), hook), "httpGet")
	}
	return actions
}

func movePort(c, action object, to map[int64]int32) {
	var number int64
	switch port := action["port"].(type) {
	case json.Number:
		number, _ = port.Int64()
	case string:
		number = declaredPort(c, port)
	}
	if target, ok := to[number]; ok {
		action["port"] = json.Number(strconv.Itoa(int(target)))
	}
}

// declaredPort resolves a name as kubelet does: among the ports of the same container only. 0 when there is none.
func declaredPort(c object, name string) int64 {
	list := items(c, "ports")
	i := indexOf(list, name)
	if i < 0 {
		return 0
	}
	p, _ := list[i].(object)
	n, _ := p["containerPort"].(json.Number)
	number, _ := n.Int64()
	return number
}
