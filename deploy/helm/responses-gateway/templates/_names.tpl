{{- define "responses-gateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "responses-gateway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "responses-gateway.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "responses-gateway.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "responses-gateway.selector" -}}
app.kubernetes.io/name: {{ include "responses-gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "responses-gateway.labels" -}}
{{ include "responses-gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "responses-gateway.secretName" -}}
{{- default (include "responses-gateway.fullname" .) .Values.secrets.existingSecret -}}
{{- end -}}

{{- define "responses-gateway.scheme" -}}
{{- if .Values.settings.tls_cert }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{- define "responses-gateway.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "responses-gateway.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The namespaces whose services the pools of the settings name, as a JSON object; those outside the cluster do not count. */}}
{{- define "responses-gateway.watched" -}}
{{- $found := dict -}}
{{- range $pool := .Values.settings.pools | default dict -}}
{{- if and (kindIs "map" $pool) $pool.kubernetes (not $pool.api) -}}
{{- $parts := splitList "/" $pool.kubernetes -}}
{{- $_ := set $found (ternary (first $parts) $.Release.Namespace (gt (len $parts) 1)) true -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* The settings, with the store of this release where it has one. */}}
{{- define "responses-gateway.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if .Values.postgresql.enabled -}}
{{- if not (has ($settings.store | default "none") (list "none" "auto")) -}}
{{- fail "settings.store and postgresql.enabled contradict each other: leave one of them out" -}}
{{- end -}}
{{- $auth := .Values.postgresql.auth -}}
{{- $_ := set $settings "store" (printf "postgresql://%s@%s-postgresql/%s" $auth.username .Release.Name $auth.database) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Reject settings without a backend, and those that do not work with several replicas. The schema could not say what to do. */}}
{{- define "responses-gateway.check" -}}
{{- $given := .Values.settings.backend | default (list) -}}
{{- $urls := ternary (list $given) $given (kindIs "string" $given) -}}
{{- if not (or $urls .Values.settings.backends .Values.settings.pools) -}}
{{- fail "there is no backend: give the URL of your Chat Completions server, for example --set settings.backend=http://vllm:8000" -}}
{{- end -}}
{{- range $urls -}}
{{- if not (regexMatch "^https?://" .) -}}
{{- fail (printf "settings.backend is %q: it must be a URL that begins with http:// or https://" .) -}}
{{- end -}}
{{- end -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) -}}
{{- $store := (include "responses-gateway.settings" . | fromYaml).store | default "auto" -}}
{{- if and $several (ne $store "none") (not (regexMatch "^postgres(ql)?://" $store)) -}}
{{- fail (printf "settings.store is %q, which replicas do not share: give a postgresql:// address, or none, or replicaCount: 1 without autoscaling" $store) -}}
{{- end -}}
{{- if and .Values.persistence.enabled $several -}}
{{- fail "persistence is for one replica: set replicaCount: 1 and leave autoscaling off" -}}
{{- end -}}
{{- end -}}
