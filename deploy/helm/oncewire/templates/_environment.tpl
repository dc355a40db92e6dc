{{- /* What the chart sets of each router: names that `extraEnv` may not have. */}}
{{- define "oncewire.environment" -}}
{{- $tls := include "oncewire.tlsSecret" . -}}
{{- $etcdTls := include "oncewire.etcdTlsSecret" . -}}
{{- $host := printf "$(POD_NAME).%s.%s" (include "oncewire.pods" .) (include "oncewire.domain" .) -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: ONCEWIRE_ID, value: "$(POD_NAME)"}
- {name: ONCEWIRE_WORKERS, value: {{ .Values.workers | quote }}}
- {name: ONCEWIRE_LISTEN_HOST, value: "0.0.0.0"}
- {name: ONCEWIRE_LISTEN_PORT, value: {{ include "oncewire.amqpPort" . | quote }}}
- {name: ONCEWIRE_LISTEN_ADVERTISE, value: {{ .Values.advertise | default (printf "%s:%s" $host (include "oncewire.amqpPort" .)) | quote }}}
- {name: ONCEWIRE_LISTEN_ALLOW_ANONYMOUS, value: {{ ternary "always" "never" .Values.users.anonymous }}}
- {name: ONCEWIRE_INTER_ROUTER_HOST, value: "0.0.0.0"}
- {name: ONCEWIRE_INTER_ROUTER_PORT, value: "5673"}
- {name: ONCEWIRE_INTER_ROUTER_ADVERTISE, value: {{ printf "%s:5673" $host | quote }}}
- {name: ONCEWIRE_INTER_ROUTER_ALLOW_ANONYMOUS, value: never}
- name: ONCEWIRE_INTER_ROUTER_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "oncewire.interRouterSecret" . }}, key: password}}
- {name: ONCEWIRE_HTTP_HOST, value: "0.0.0.0"}
- {name: ONCEWIRE_HTTP_PORT, value: "8672"}
- {name: ONCEWIRE_HTTP_ANONYMOUS_ROLE, value: {{ .Values.http.anonymousRole }}}
# A proxy in the pod, as those of service meshes, would pass on requests of other machines as its own.
- {name: ONCEWIRE_HTTP_LOOPBACK_ROLE, value: none}
- {name: ONCEWIRE_HTTP_NAMES, value: "{{ include "oncewire.name" . }},{{ include "oncewire.name" . }}.{{ .Release.Namespace }},{{ include "oncewire.name" . }}.{{ .Release.Namespace }}.svc,{{ include "oncewire.name" . }}.{{ include "oncewire.domain" . }},{{ $host }}"}
{{- if .Values.users.existingSecret }}
- {name: ONCEWIRE_USERS_FILE, value: /etc/oncewire/users/users}
{{- end }}
{{- if $tls }}
- {name: ONCEWIRE_LISTEN_TLS, value: "true"}
- {name: ONCEWIRE_INTER_ROUTER_TLS, value: "true"}
- {name: ONCEWIRE_HTTP_TLS, value: "true"}
- {name: ONCEWIRE_TLS_CERT_FILE, value: /etc/oncewire/tls/tls.crt}
- {name: ONCEWIRE_TLS_KEY_FILE, value: /etc/oncewire/tls/tls.key}
- {name: ONCEWIRE_TLS_CA_FILE, value: /etc/oncewire/tls/ca.crt}
- {name: ONCEWIRE_TLS_CLIENT_CERTIFICATES, value: {{ .Values.tls.clientCertificates }}}
{{- end }}
- {name: ONCEWIRE_ETCD_ENDPOINTS, value: {{ include "oncewire.etcdEndpoints" . | quote }}}
{{- if $etcdTls }}
- {name: ONCEWIRE_ETCD_CA_FILE, value: /etc/oncewire/etcd/ca.crt}
{{- if or .Values.etcd.enabled .Values.etcd.external.clientCertificate }}
- {name: ONCEWIRE_ETCD_CERT_FILE, value: /etc/oncewire/etcd/tls.crt}
- {name: ONCEWIRE_ETCD_KEY_FILE, value: /etc/oncewire/etcd/tls.key}
{{- end }}
{{- end }}
# For as long as the pod is there, also when its container starts again.
- {name: ONCEWIRE_ETCD_MEMORY_FOLDER, value: /tmp/etcd-memory}
{{- if and (not .Values.etcd.enabled) .Values.etcd.external.loginSecret }}
- name: ONCEWIRE_ETCD_USER
  valueFrom: {secretKeyRef: {name: {{ .Values.etcd.external.loginSecret }}, key: user}}
- name: ONCEWIRE_ETCD_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.etcd.external.loginSecret }}, key: password}}
{{- end }}
{{- end -}}
