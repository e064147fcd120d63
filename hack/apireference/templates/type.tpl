{{- define "type" -}}
{{- $rule := "kubebuilder:validation:XValidation" -}}
{{- if markdownShouldRenderType . }}
## {{ .Name }}

{{ template "text" .Doc }}
{{- if and .IsAlias (not .EnumValues) }} A {{ markdownRenderTypeLink .UnderlyingType }}{{ template "bounds" .Validation }}.{{ end }}
{{- if .References }} Stands in {{ range $i, $user := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $user }}{{ end }}.{{ end }}
{{ if .Members }}
| Field | Type | Default | Meaning |
|---|---|---|---|
{{ if .GVK -}}
| `apiVersion` | string | required | `{{ .GVK.Group }}/{{ .GVK.Version }}` |
| `kind` | string | required | `{{ .GVK.Kind }}` |
{{ end -}}
{{ range .Members }}{{ template "member" . }}{{ end -}}
{{ end -}}
{{ if .EnumValues }}{{ template "values" .EnumValues }}{{ end -}}
{{- /* A field's markers hold those of its type, which has them below its own heading. */ -}}
{{- $rules := list -}}
{{- range index .Markers $rule }}{{ $rules = append $rules .Message }}{{ end -}}
{{- range $member := .Members -}}
  {{- $of := $member.Type -}}
  {{- if and $of.UnderlyingType (ne (kindOf $of.UnderlyingType) "invalid") (not $of.IsAlias) }}{{ $of = $of.UnderlyingType }}{{ end -}}
  {{- $known := list -}}
  {{- range index $of.Markers $rule }}{{ $known = append $known .Message }}{{ end -}}
  {{- range index $member.Markers $rule -}}
    {{- if not (has .Message $known) }}{{ $rules = append $rules (printf "`%s`: %s" $member.Name .Message) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{ if $rules }}
Rules:

{{ range $rules -}}
- {{ . }}
{{ end -}}
{{ end -}}
{{ end -}}
{{- end -}}

{{- define "text" }}{{ . | replace "\n" " " | trim | markdownRenderFieldDoc }}{{ end -}}

{{- define "values" }}
{{- if (first .).Doc }}
| Value | Meaning |
|---|---|
{{ range . -}}
| `{{ .Name }}` | {{ template "text" (regexReplaceAll "^[A-Za-z0-9]+ " .Doc "") }} |
{{ end -}}
{{ else }}
One of {{ range $i, $value := . }}{{ if $i }}, {{ end }}`{{ $value.Name }}`{{ end }}.
{{ end -}}
{{- end -}}
