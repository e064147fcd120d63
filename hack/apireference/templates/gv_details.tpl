{{- define "gvDetails" -}}
# {{ .GroupVersionString }}

<!-- Written by `make generate` from the types of this folder, by the templates in hack/apireference. Change those. -->

Every field of a `RateLimitPolicy` and every type below it, by name. `../README.md` tells how they play together; `kubectl explain rlp.spec` shows the fields on
a cluster. A rule is what the API server says when it refuses a policy for it.
{{ range .SortedKinds }}
Start at [{{ . }}](#{{ . | lower }}).
{{ end -}}
{{ range .SortedTypes }}{{ template "type" . }}{{ end -}}
{{- end -}}
