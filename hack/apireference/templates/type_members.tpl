{{- define "member" -}}
| `{{ .Name }}` | {{ markdownRenderType .Type }}{{ template "bounds" .Validation }} | {{ if has "Required: {}" .Validation }}required{{ else if .Default }}`{{ .Default }}`{{ end }} | {{ template "meaning" . }} |
{{ end -}}

{{- define "meaning" -}}
{{- if eq .Name "metadata" }}as of every object of Kubernetes{{ else }}{{ template "text" (regexReplaceAll (printf "^%s (is|are) " .Name) .Doc "") }}{{ end -}}
{{- end -}}

{{- define "bounds" -}}
{{- range reverse . }}{{ if regexMatch "^(Min|Max|Pattern|Format)" . }}, {{ template "bound" . }}{{ end }}{{ end -}}
{{- end -}}

{{- define "bound" -}}
{{- $bound := . | replace "e+09" "000000000" -}}
{{- $bound = regexReplaceAll "^Min[A-Za-z]*(.*)" $bound "≥${1}" | replace ":" "" -}}
{{- $bound = regexReplaceAll "^Max[A-Za-z]*(.*)" $bound "≤${1}" | replace ":" "" -}}
{{- $bound }}{{ if contains "Length" . }} characters{{ else if contains "Items" . }} entries{{ else if contains "Properties" . }} entries{{ end -}}
{{- end -}}
