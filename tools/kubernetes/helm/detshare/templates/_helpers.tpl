{{- define "detshare.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) -}}
{{- $name = printf "%s-%s" $name .Chart.Name -}}
{{- end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "detshare.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "detshare.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* A resource in the format of the plugin's flag --resource. */}}
{{- define "detshare.resource" -}}
{{ required "a resource needs a name" .name }},shares={{ .shares | default 8 }}
{{- with .class }},class={{ . }}{{ end }}
{{- with .weight }},weight={{ . }}{{ end }}
{{- if .exclusive }},exclusive=on{{ end }}
{{- if hasKey . "memory" }},memory={{ .memory }}{{ end }}
{{- with .pinnedMemory }},pinned-memory={{ . }}{{ end }}
{{- with .sloLatency }},slo-latency={{ . }}{{ end }}
{{- with .sloTtft }},slo-ttft={{ . }}{{ end }}
{{- with .sloTpot }},slo-tpot={{ . }}{{ end }}
{{- end -}}

{{/* The placement of both DaemonSets on nodes. */}}
{{- define "detshare.placement" -}}
priorityClassName: {{ .Values.priorityClassName | quote }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if .Values.gpuNodesOnly }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      # One of these labels is enough.
      nodeSelectorTerms:
      {{- range list "nvidia.com/gpu.present" "feature.node.kubernetes.io/pci-10de.present" "feature.node.kubernetes.io/pci-0300_10de.present" "feature.node.kubernetes.io/pci-0302_10de.present" "detshare.io/gpu" }}
        - matchExpressions:
            - {key: {{ . }}, operator: In, values: ["true"]}
      {{- end }}
{{- end }}
{{- end -}}
