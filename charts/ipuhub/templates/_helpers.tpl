{{/*
"ipuhub.one": JSON of a list: the parameter's value under the name that is set, else the default.
Two names with two values stop the installation.
*/}}
{{- define "ipuhub.one" -}}
{{- $found := dict -}}
{{- $default := .default -}}
{{- $values := .root.Values -}}
{{- range $name := .names -}}
{{- $node := $values -}}
{{- range $part := splitList "." $name -}}
{{- if and (kindIs "map" $node) (hasKey $node $part) -}}
{{- $node = index $node $part -}}
{{- else -}}
{{- $node = "" -}}
{{- end -}}
{{- end -}}
{{- if and (not (empty $node)) (ne (toJson $node) (toJson $default)) -}}
{{- if and (hasKey $found "json") (ne $found.json (toJson $node)) -}}
{{- fail (printf "%s and %s name the same parameter and have different values: set one of them" $found.name $name) -}}
{{- end -}}
{{- $_ := set $found "json" (toJson $node) -}}
{{- $_ := set $found "name" $name -}}
{{- end -}}
{{- end -}}
{{- printf "[%s]" ($found.json | default (toJson $default)) -}}
{{- end -}}

{{- define "ipuhub.appName" -}}
{{- .Values.nameOverride | default "ipu-operator" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ipuhub.fullname" -}}
{{- $given := include "ipuhub.one" (dict "root" . "names" (list "fullNameOverride" "fullnameOverride") "default" "") | fromJsonArray | first -}}
{{- if $given -}}
{{- $given | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "ipuhub.appName" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
dict root name: the name of a ClusterRole and its binding. It is never cut: several components would get the
same name, and each of them the rights of the last. Its parts have at most 63, 40 and 17 characters; a role may have 253.
*/}}
{{- define "ipuhub.clusterName" -}}
{{- printf "%s-%s-%s" .root.Release.Namespace (include "ipuhub.fullname" .root) .name -}}
{{- end -}}

{{- define "ipuhub.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
app.kubernetes.io/name: {{ include "ipuhub.appName" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: ipuhub
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* dict root component */}}
{{- define "ipuhub.selector" -}}
app.kubernetes.io/name: {{ include "ipuhub.appName" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end -}}

{{/* dict root component [name]: an object's metadata but its namespace's closing lines */}}
{{- define "ipuhub.metadata" -}}
name: {{ .name | default (printf "%s-%s" (include "ipuhub.fullname" .root) .component) | quote }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- include "ipuhub.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component | quote }}
{{- end -}}

{{/* dict root image(values of a component) */}}
{{- define "ipuhub.image" -}}
{{- $image := .image | default dict -}}
{{- $repository := $image.repository | default (include "ipuhub.repository" .root) -}}
{{- $tag := ternary (include "ipuhub.tag" .root) (.root.Values.image.tag | default .root.Chart.AppVersion) (empty $image.repository) -}}
{{- $given := $image.tag | default (ternary .root.Values.image.tag "" (empty $image.repository)) -}}
{{- include "ipuhub.imageName" (dict "repository" $repository "given" $given "tag" $tag) -}}
{{- end -}}

{{/* repository, the tag that was given (if any) and else tag, as one name; repository or tag may have a digest, which is an image's whole name. */}}
{{- define "ipuhub.imageName" -}}
{{- $tag := .given | default .tag -}}
{{- if contains "@" .repository -}}
{{- with .given -}}
{{- fail (printf "image.tag: %s has no effect, as the digest of image.repository %s names one image; leave it empty" . $.repository) -}}
{{- end -}}
{{- .repository -}}
{{- else if regexMatch ":[^/]*$" .repository -}}
{{- fail (printf "image.repository: %s has a tag; give the tag as image.tag beside it" .repository) -}}
{{- else if hasPrefix "sha256:" $tag -}}
{{- printf "%s@%s" .repository $tag -}}
{{- else -}}
{{- printf "%s:%s" .repository $tag -}}
{{- end -}}
{{- end -}}

{{/* The image beside IPUHub's own; dict root suffix tag parameter(that names it otherwise). */}}
{{- define "ipuhub.imageBeside" -}}
{{- $repository := include "ipuhub.repository" .root -}}
{{- $tag := .tag | default (include "ipuhub.tag" .root) -}}
{{- if or (contains "@" $repository) (and (hasPrefix "sha256:" $tag) (not .tag)) -}}
{{- fail (printf "%s is missing: a digest names one image, and this one has its own" .parameter) -}}
{{- end -}}
{{- include "ipuhub.imageName" (dict "repository" (printf "%s-%s" $repository .suffix) "tag" $tag) -}}
{{- end -}}

{{/*
All components run one image: where only the operator's is named, as in Graphcore's command, its
registry has the others', too.
*/}}
{{- define "ipuhub.repository" -}}
{{- .Values.image.repository | default .Values.controller.image.repository | default "localhost/ipuhub" -}}
{{- end -}}
{{- define "ipuhub.tag" -}}
{{- $operators := ternary "" .Values.controller.image.tag (or (ne .Values.image.repository "") (empty .Values.controller.image.repository)) -}}
{{- .Values.image.tag | default $operators | default .Chart.AppVersion -}}
{{- end -}}

{{- define "ipuhub.launcherImage" -}}
{{- $image := .Values.global.launcherImage -}}
{{- $tag := .Values.global.launcherImageTag -}}
{{- if and $tag (regexMatch "[:@][^/]*$" $image) -}}
{{- fail (printf "global.launcherImageTag: global.launcherImage %s has a tag already" $image) -}}
{{- end -}}
{{- if $image -}}
{{- if $tag -}}{{- include "ipuhub.imageName" (dict "repository" $image "tag" $tag) -}}{{- else -}}{{- $image -}}{{- end -}}
{{- else -}}
{{- include "ipuhub.imageBeside" (dict "root" . "suffix" "launcher" "tag" $tag "parameter" "global.launcherImage") -}}
{{- end -}}
{{- end -}}

{{- define "ipuhub.pullSecretNames" -}}
{{- $names := list -}}
{{- range .Values.global.imagePullSecrets -}}
{{- $names = append $names (ternary . (get (ternary dict . (kindIs "string" .)) "name") (kindIs "string" .)) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* JSON list of the namespaces whose jobs the webhooks check; empty: all but kube-system and the release's. */}}
{{- define "ipuhub.webhookNamespaces" -}}
{{- .Values.admissionWebhooks.scope | default (join "," .Values.controller.namespaces) | nospace | splitList "," | compact | toJson -}}
{{- end -}}

{{/* Of a Job that Helm runs: a ResourceQuota may refuse pods without. */}}
{{- define "ipuhub.hookResources" -}}
requests: {cpu: 50m, memory: 128Mi}
limits: {cpu: "1", memory: 256Mi}
{{- end -}}

{{/* dict root values: where pods may run, by the values of one component: of hooks, the operator's. */}}
{{- define "ipuhub.placement" -}}
{{- $everywhere := .root.Values.global -}}
{{- with merge dict (.values.nodeSelector | default dict) ($everywhere.nodeSelector | default dict) }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.values.tolerations | default list) ($everywhere.tolerations | default list) | uniq }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ipuhub.operatorAccount" -}}
{{- include "ipuhub.one" (dict "root" . "names" (list "controller.serviceAccount.name" "controllers.serviceAccount.name") "default" "") | fromJsonArray | first | default (printf "%s-controller" (include "ipuhub.fullname" .)) -}}
{{- end -}}

{{- define "ipuhub.serviceType" -}}
{{- ternary "ClusterIP" . (eq (lower .) "clusterip") -}}
{{- end -}}

{{/* Where the proxy is asked for partitions. */}}
{{- define "ipuhub.proxyUrl" -}}
{{- printf "http://%s-vipu-proxy.%s.svc:%v" (include "ipuhub.fullname" .) .Release.Namespace .Values.vipuProxy.ordersPort -}}
{{- end -}}

{{- define "ipuhub.controllers" -}}
{{- $list := include "ipuhub.one" (dict "root" . "names" (list "vipuControllers" "global.vipuControllers") "default" "") | fromJsonArray | first -}}
{{- if and (not $list) .Values.vipuServerAddr -}}
{{- if eq .Values.vipuServerAddr "example.com" -}}
{{- fail "vipuServerAddr is still example.com: set it to the host of your V-IPU controller, or set vipuControllers" -}}
{{- end -}}
{{- $host := .Values.vipuServerAddr -}}
{{- if contains ":" $host -}}{{- $host = printf "[%s]" (trimAll "[]" $host) -}}{{- end -}}
{{- $list = printf "%s:%v:%s" $host .Values.vipuServerPort .Values.vipuServerLabel -}}
{{- end -}}
{{- if .Values.vipuServer.enabled -}}
{{- $own := printf "%s-vipu-server.%s.svc:8090:%s" (include "ipuhub.fullname" .) .Release.Namespace .Values.vipuServer.nodeLabel -}}
{{- $list = ternary (printf "%s,%s" $list $own) $own (ne $list "") -}}
{{- end -}}
{{- if not $list -}}
{{- fail "no V-IPU controller: set vipuControllers (host:port:key=value,...) or vipuServerAddr; for a trial vipuServer.enabled=true" -}}
{{- end -}}
{{- range $part := splitList "," $list -}}
{{- if not (regexMatch "^(\\[[0-9A-Fa-f:.]+\\]|[^][:/ ]+):[0-9]{1,5}:[^=:; ]+=[^=:; ]*(;.*)?$" (trim $part)) -}}
{{- fail (printf "vipuControllers: %q is not host:port:key=value" (trim $part)) -}}
{{- end -}}
{{- if hasPrefix "example.com:" (trim $part) -}}
{{- fail "vipuControllers is still example.com: set it to the host of your V-IPU controller" -}}
{{- end -}}
{{- $port := include "ipuhub.controllerPort" $part | int -}}
{{- if or (lt $port 1) (gt $port 65535) -}}
{{- fail (printf "vipuControllers: %q has no port between 1 and 65535" (trim $part)) -}}
{{- end -}}
{{- end -}}
{{- $list -}}
{{- end -}}

{{- define "ipuhub.controllerPort" -}}
{{- regexReplaceAll "^(\\[[^]]*\\]|[^:]*):([0-9]+):.*$" (trim .) "${2}" -}}
{{- end -}}

{{- define "ipuhub.databaseSecret" -}}
{{- if .Values.database.existingSecret -}}
{{- .Values.database.existingSecret -}}
{{- else if or .Values.database.url .Values.database.enabled -}}
{{- printf "%s-database" (include "ipuhub.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "ipuhub.schedulerName" -}}
{{- if and .Values.extendedScheduler.enabled .Values.extendedScheduler.deploy }}{{ .Values.extendedScheduler.schedulerName }}{{ end -}}
{{- end -}}

{{/* "yes" where dashboard or usage run: both need a database. */}}
{{- define "ipuhub.hasWeb" -}}
{{- if and .Values.web.enabled (include "ipuhub.databaseSecret" .) }}yes{{ end -}}
{{- end -}}
{{- define "ipuhub.hasUsage" -}}
{{- if and .Values.usage.enabled (include "ipuhub.databaseSecret" .) }}yes{{ end -}}
{{- end -}}

{{/*
Of prober and monitor: "on" where no dashboard migrates the database. No hook does: hooks that run after
an installation wait for pods that would wait for them, and `helm template` has none.
*/}}
{{- define "ipuhub.migrate" -}}
{{- ternary "off" "on" (and (ne (include "ipuhub.hasWeb" .) "") (gt (int .Values.web.replicas) 0)) -}}
{{- end -}}

{{- define "ipuhub.webSecret" -}}
{{- .Values.web.existingSecret | default (printf "%s-web" (include "ipuhub.fullname" .)) -}}
{{- end -}}

{{/* The environment of every component. */}}
{{- define "ipuhub.commonEnv" -}}
IPUHUB_NAMESPACE: {{ .Release.Namespace | quote }}
IPUHUB_LEASE_PREFIX: {{ printf "%s-" (include "ipuhub.fullname" .) | quote }}
IPUHUB_PROXY_URL: {{ include "ipuhub.proxyUrl" . | quote }}
IPUHUB_HEALTH_HOST: "::"
IPUHUB_LOG_FORMAT: json
USAGE_ENABLED: {{ ternary "on" "off" (ne (include "ipuhub.hasUsage" .) "") | quote }}
{{- end -}}

{{/* JSON: settings of the month reports, for those who make and show them: a mistake stops nobody else. */}}
{{- define "ipuhub.reports" -}}
{{- if include "ipuhub.hasUsage" . -}}
{{- dict "IPUHUB_REPORT_SCHEDULE" .Values.usage.schedule "IPUHUB_REPORT_ZONE" .Values.usage.reportZone | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/*
"ipuhub.workload": one Deployment.
dict root component values [command args env account ports probePort readyPath secrets(name -> Secret)
hostNetwork dnsPolicy podAnnotations podContext context strategy nodeSelector tolerations affinity resources replicas podName
name labels(that tell it from other workloads of the component) tcpPort]
*/}}
{{- define "ipuhub.workload" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $authority := dict }}
{{- if and $root.Values.database.caKey (hasKey (.secrets | default dict) "DATABASE_URL") -}}
{{- $authority = dict "IPUHUB_DATABASE_CA_PATH" (printf "/run/ipuhub/database/%s" $root.Values.database.caKey) -}}
{{- end -}}
{{- $env := mergeOverwrite (include "ipuhub.commonEnv" $root | fromYaml) $authority (.env | default dict) $root.Values.settings ($values.settings | default dict) -}}
{{- $image := $values.image | default dict -}}
{{- $replicas := ternary 1 (int .replicas) (kindIs "invalid" .replicas) -}}
apiVersion: apps/v1
kind: {{ .kind | default "Deployment" }}
metadata:
  {{- include "ipuhub.metadata" (dict "root" $root "component" .component "name" .name) | nindent 2 }}
spec:
  replicas: {{ $replicas }}
  {{- if eq (.kind | default "Deployment") "StatefulSet" }}
  serviceName: {{ printf "%s-%s" (include "ipuhub.fullname" $root) .component }}
  {{- else if .recreate }}
  strategy: {type: Recreate}
  {{- else if .hostNetwork }}
  strategy:
    # The old pod has the port of its node.
    rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
  {{- else }}
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  {{- end }}
  selector:
    matchLabels:
      {{- include "ipuhub.selector" (dict "root" $root "component" .component) | nindent 6 }}
      {{- with .labels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  template:
    metadata:
      labels:
        {{- include "ipuhub.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component | quote }}
        {{- with .labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .component | quote }}
        {{- if and $root.Values.database.url (hasKey (.secrets | default dict) "DATABASE_URL") }}
        {{- /* A process reads the address once. Four digits show a change, and let nobody who reads pods check a guess of the password. */}}
        checksum/database: {{ $root.Values.database.url | sha256sum | trunc 4 | quote }}
        {{- end }}
        {{- with .podAnnotations | default $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .account | default (printf "%s-%s" (include "ipuhub.fullname" $root) .component) | quote }}
      automountServiceAccountToken: {{ if .account }}true{{ else }}false{{ end }}
      enableServiceLinks: false
      {{- with include "ipuhub.pullSecretNames" $root | fromJsonArray }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . | quote }}
        {{- end }}
      {{- end }}
      {{- if .hostNetwork }}
      hostNetwork: true
      {{- end }}
      {{- with .dnsPolicy }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      terminationGracePeriodSeconds: 35
      securityContext:
        {{- toYaml (mergeOverwrite (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault")) (.podContext | default dict)) | nindent 8 }}
      containers:
        - name: {{ .component | quote }}
          image: {{ include "ipuhub.image" (dict "root" $root "image" $image) | quote }}
          imagePullPolicy: {{ $image.pullPolicy | default $root.Values.image.pullPolicy }}
          {{- with .command }}
          command: {{ toJson . }}
          {{- end }}
          args: {{ toJson .args }}
          env:
            {{- range $name, $value := $env }}
            - name: {{ $name }}
              value: {{ $value | toString | quote }}
            {{- end }}
            {{- if .podName }}
            - name: IPUHUB_POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            {{- end }}
            {{- range $name, $secret := .secrets | default dict }}
            - name: {{ $name }}_FILE
              value: /run/ipuhub/{{ $secret.name }}/{{ $secret.key }}
            {{- end }}
          {{- with .ports }}
          ports:
            {{- range $name, $port := . }}
            - name: {{ $name }}
              containerPort: {{ $port }}
            {{- end }}
          {{- end }}
          {{- if .grpcPort }}
          startupProbe:
            grpc: {port: {{ .grpcPort }}}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            grpc: {port: {{ .grpcPort }}}
            periodSeconds: 20
            timeoutSeconds: 5
          readinessProbe:
            grpc: {port: {{ .grpcPort }}}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- else if .tcpPort }}
          startupProbe:
            tcpSocket: {port: {{ .tcpPort }}}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            tcpSocket: {port: {{ .tcpPort }}}
            periodSeconds: 20
          readinessProbe:
            tcpSocket: {port: {{ .tcpPort }}}
            periodSeconds: 5
          {{- else if .probePort }}
          # Until it answers once it may take its time: the dashboard migrates the database first.
          startupProbe:
            httpGet: {path: /healthz, port: {{ .probePort }}{{ with .probeScheme }}, scheme: {{ . }}{{ end }}}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 150
          livenessProbe:
            httpGet: {path: /healthz, port: {{ .probePort }}{{ with .probeScheme }}, scheme: {{ . }}{{ end }}}
            periodSeconds: 20
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: {{ .probePort }}{{ with .probeScheme }}, scheme: {{ . }}{{ end }}}
            periodSeconds: 3
            timeoutSeconds: 5
          {{- end }}
          resources:
            {{- toYaml (.resources | default $values.resources | default (dict "requests" (dict "cpu" "50m" "memory" "128Mi") "limits" (dict "memory" (.memory | default "512Mi")))) | nindent 12 }}
          securityContext:
            {{- toYaml (mergeOverwrite (dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL"))) (.context | default dict)) | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- range $name, $secret := .secrets | default dict }}
            {{- if not $secret.shared }}
            - {name: {{ $secret.name }}, mountPath: /run/ipuhub/{{ $secret.name }}, readOnly: true}
            {{- end }}
            {{- end }}
            {{- with .mounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- range $name, $secret := .secrets | default dict }}
        {{- if not $secret.shared }}
        - name: {{ $secret.name }}
          {{- /* A process says which file is missing; a pod that cannot be made says nothing. */}}
          secret: {secretName: {{ $secret.secret | quote }}, defaultMode: 288, optional: true}
        {{- end }}
        {{- end }}
        {{- with .volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with include "ipuhub.placement" (dict "root" $root "values" (dict "nodeSelector" (.nodeSelector | default $values.nodeSelector) "tolerations" (.tolerations | default $values.tolerations) "affinity" (.affinity | default $values.affinity))) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if gt $replicas 1 }}
      {{- include "ipuhub.spread" (dict "root" $root "component" .component) | nindent 6 }}
      {{- end }}
  {{- with .claims }}
  volumeClaimTemplates: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if and (gt $replicas 1) $root.Values.podDisruptionBudgets.enabled }}
---
{{ include "ipuhub.disruptionBudget" (dict "root" $root "component" .component) }}
{{- end }}
{{- end -}}

{{/* dict root component: of a workload with several pods. */}}
{{- define "ipuhub.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    {{- if semverCompare ">=1.27-0" .root.Capabilities.KubeVersion.Version }}
    {{- /* Else pods that an upgrade is about to end are counted, and both new pods may share a node. */}}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
    labelSelector:
      matchLabels:
        {{- include "ipuhub.selector" (dict "root" .root "component" .component) | nindent 8 }}
{{- end -}}

{{- define "ipuhub.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "ipuhub.metadata" (dict "root" .root "component" .component) | nindent 2 }}
spec:
  minAvailable: 1
  selector:
    matchLabels:
      {{- include "ipuhub.selector" (dict "root" .root "component" .component) | nindent 6 }}
{{- end -}}

{{/* dict root component type ports(list of name,port,target) [annotations name] */}}
{{- define "ipuhub.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "ipuhub.metadata" . | nindent 2 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ include "ipuhub.serviceType" (.type | default "ClusterIP") }}
  selector:
    {{- include "ipuhub.selector" . | nindent 4 }}
    {{- with .only }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    {{- range .ports }}
    - {name: {{ .name }}, port: {{ .port }}, targetPort: {{ .target }}}
    {{- end }}
{{- end -}}

{{/* Who makes the webhooks' certificate. */}}
{{- define "ipuhub.certificateMode" -}}
{{- $given := .Values.admissionWebhooks.certificate -}}
{{- $mode := $given.mode | default (ternary "existingSecret" "webhooks" (ne $given.existingSecret "")) -}}
{{- if and $given.existingSecret (ne $mode "existingSecret") -}}
{{- fail (printf "admissionWebhooks.certificate: mode %s and existingSecret exclude each other" $mode) -}}
{{- end -}}
{{- if eq $mode "existingSecret" -}}
{{- if not $given.existingSecret }}{{ fail "admissionWebhooks.certificate.existingSecret is missing: the Secret with tls.crt and tls.key" }}{{ end -}}
{{- if not $given.caBundle }}{{ fail "admissionWebhooks.certificate.caBundle is missing: the PEM certificate of the authority of existingSecret" }}{{ end -}}
{{- end -}}
{{- if and (not .Values.admissionWebhooks.patch.enabled) (has $mode (list "webhooks" "helm")) -}}
{{- fail "admissionWebhooks.patch.enabled=false: set admissionWebhooks.certificate.existingSecret and caBundle, or mode certManager" -}}
{{- end -}}
{{- if and $given.issuer.name (ne $mode "certManager") -}}
{{- fail "admissionWebhooks.certificate.issuer needs mode certManager" -}}
{{- end -}}
{{- $mode -}}
{{- end -}}

{{- /* A list of texts that may have commas, for IPUHub's settings. */}}
{{- define "ipuhub.texts" }}{{ if or (contains "," (join "" .)) (hasPrefix "[" (join "" .)) }}{{ toJson . }}{{ else }}{{ join "," . }}{{ end }}{{ end }}

{{- /* Settings of notifications, for the dashboard, which checks them, and the worker, which sends. */}}
{{- define "ipuhub.notify" -}}
{{- $mail := .Values.mail }}
{{- if and $mail.host (not (contains "@" $mail.from)) }}{{ fail "mail.host needs mail.from: the sender's address" }}{{ end }}
{{- dict "IPUHUB_PUBLIC_URL" .Values.notifications.publicUrl "IPUHUB_NOTIFY_NETWORKS" (join "," .Values.notifications.networks)
  "IPUHUB_MAIL_HOST" $mail.host "IPUHUB_MAIL_PORT" (toString (int $mail.port)) "IPUHUB_MAIL_TLS" $mail.tls "IPUHUB_MAIL_FROM" $mail.from
  "IPUHUB_MAIL_USER" $mail.user "IPUHUB_MAIL_DOMAINS" (join "," $mail.domains) | toJson }}
{{- end }}
