{{/* Names, labels, and what several manifests need alike. */}}

{{- define "oncewire.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The headless service of the routers: each pod has a name there. */}}
{{- define "oncewire.pods" -}}{{ include "oncewire.name" . }}-pods{{- end -}}
{{- define "oncewire.etcd" -}}{{ include "oncewire.name" . }}-etcd{{- end -}}
{{- define "oncewire.domain" -}}{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}{{- end -}}

{{- define "oncewire.selector" -}}
app.kubernetes.io/name: oncewire
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: router
{{- end -}}

{{- define "oncewire.etcdSelector" -}}
app.kubernetes.io/name: oncewire
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: etcd
{{- end -}}

{{- define "oncewire.edge" -}}{{ include "oncewire.name" . }}-edge{{- end -}}

{{- define "oncewire.edgeSelector" -}}
app.kubernetes.io/name: oncewire
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: edge
{{- end -}}

{{- define "oncewire.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of a resource: root, name, selector (a template's name); labels and annotations of its own, if any. */}}
{{- define "oncewire.metadata" -}}
name: {{ .name }}
labels:
  {{- include .selector .root | nindent 2 }}
  {{- include "oncewire.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* image: of values; tag: where it names none. */}}
{{- define "oncewire.image" -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end -}}

{{- define "oncewire.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "oncewire.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Where pods run: root, values (of the part), selector. A constraint without a labelSelector spreads the part's own pods. */}}
{{- define "oncewire.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not (hasKey . "labelSelector") }}
    labelSelector:
      matchLabels:
        {{- include $.selector $.root | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The Secret with the routers' certificate; empty = no TLS. */}}
{{- define "oncewire.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.certManager.enabled -}}{{ include "oncewire.name" . }}-tls
{{- end -}}
{{- end -}}

{{- define "oncewire.amqpPort" -}}{{ if include "oncewire.tlsSecret" . }}5671{{ else }}5672{{ end }}{{- end -}}

{{- define "oncewire.interRouterSecret" -}}
{{- .Values.interRouter.existingSecret | default (printf "%s-routers" (include "oncewire.name" .)) -}}
{{- end -}}

{{- define "oncewire.etcdScheme" -}}{{ if .Values.etcd.tlsSecret }}https{{ else }}http{{ end }}{{- end -}}

{{/* Where routers reach etcd, with commas between. */}}
{{- define "oncewire.etcdEndpoints" -}}
{{- if .Values.etcd.enabled -}}
{{- $urls := list -}}
{{- range $number := until (int .Values.etcd.replicas) -}}
{{- $urls = append $urls (printf "%s://%s-%d.%s.%s:2379" (include "oncewire.etcdScheme" $) (include "oncewire.etcd" $) $number (include "oncewire.etcd" $) (include "oncewire.domain" $)) -}}
{{- end -}}
{{- join "," $urls -}}
{{- else -}}
{{- if not .Values.etcd.external.endpoints -}}
{{- fail "etcd.external.endpoints: set the addresses of your etcd, or etcd.enabled = true" -}}
{{- end -}}
{{- join "," .Values.etcd.external.endpoints -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate that routers show to etcd; empty = etcd has no TLS. */}}
{{- define "oncewire.etcdTlsSecret" -}}
{{- if .Values.etcd.enabled -}}{{ .Values.etcd.tlsSecret }}{{- else -}}{{ .Values.etcd.external.tlsSecret }}{{- end -}}
{{- end -}}

{{- define "oncewire.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "oncewire.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
