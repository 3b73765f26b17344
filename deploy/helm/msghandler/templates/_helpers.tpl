{{/* The name of all objects: for each release another, also where two names differ behind the length that Kubernetes allows. A release
may begin with a digit and have dots, and a service may not. 53 characters leave room for -dashboard. */}}
{{- define "msghandler.name" -}}
{{- $release := .Release.Name -}}
{{- $name := ternary $release (printf "%s-msghandler" $release) (eq $release "msghandler") -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if and (regexMatch "^[a-z][-a-z0-9]*$" $name) (le (len $name) 53) -}}
{{- $name -}}
{{- else -}}
{{- printf "m-%s-%s" ($release | replace "." "-" | trunc 40 | trimSuffix "-") (sha256sum $release | trunc 10) -}}
{{- end -}}
{{- end -}}

{{/* The labels that selectors use. They never change: the selector of a Deployment is immutable. */}}
{{- define "msghandler.selectorLabels" -}}
app.kubernetes.io/name: msghandler
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "msghandler.labels" -}}
{{ include "msghandler.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "msghandler.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "msghandler.tlsSecret" -}}
{{- if .Values.tls.certManager.issuer -}}
{{- printf "%s-tls" (include "msghandler.name" .) -}}
{{- else -}}
{{- .Values.tls.secret -}}
{{- end -}}
{{- end -}}

{{/* The names of the services in the cluster. */}}
{{- define "msghandler.grpcHost" -}}
{{- printf "%s-grpc.%s.svc" (include "msghandler.name" .) .Release.Namespace -}}
{{- end -}}
{{- define "msghandler.httpHost" -}}
{{- printf "%s-http.%s.svc" (include "msghandler.name" .) .Release.Namespace -}}
{{- end -}}

{{/* The coordinator's configuration: the chart's settings, and over them the value config, key by key. */}}
{{- define "msghandler.config" -}}
{{- $secrets := "/run/msghandler/secrets" -}}
{{- $tls := "/run/msghandler/tls" -}}
{{- $config := .Values.config | default dict -}}
{{- $hosts := list (include "msghandler.httpHost" .) -}}
{{- $grpc := dict "addr" "0.0.0.0:9090" -}}
{{- $http := dict "addr" "0.0.0.0:9091" "session_key_file" (printf "%s/session-key" $secrets) -}}
{{- $access := dict -}}
{{- $redis := dict "url_file" (printf "%s/redis-url" $secrets) -}}
{{- $amqp := dict "url_file" (printf "%s/amqp-url" $secrets) -}}
{{- $callbacks := dict "allow" list
  "networks" (list "10.0.0.0/8" "172.16.0.0/12" "192.168.0.0/16") -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat $hosts .Values.ingress.hosts -}}
{{- $_ := set $http "public_url" (printf "https://%s" (first .Values.ingress.hosts)) -}}
{{- end -}}
{{- $_ := set $http "hosts" $hosts -}}
{{- if .Values.access.tokens -}}
{{- $_ := set $access "token_file" (printf "%s/tokens" $secrets) -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- range list $grpc $http $callbacks -}}
{{- $_ := set . "tls_cert" (printf "%s/tls.crt" $tls) -}}
{{- $_ := set . "tls_key" (printf "%s/tls.key" $tls) -}}
{{- end -}}
{{- $_ := set $callbacks "tls" true -}}
{{- with .Values.tls.ca -}}
{{- $_ := set $callbacks "tls_ca" (printf "%s/%s" $tls .) -}}
{{- if $.Values.access.certificates -}}
{{- $_ := set $grpc "tls_client_ca" (printf "%s/%s" $tls .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $all := dict "grpc" $grpc "http" $http "access" $access "redis" $redis "amqp" $amqp "callbacks" $callbacks
  "log" (dict "format" "json") -}}
{{- /* A URL in config counts instead of the file of the secrets. */ -}}
{{- range list "redis" "amqp" -}}
{{- if hasKey (get $config . | default dict) "url" -}}
{{- $_ := unset (get $all .) "url_file" -}}
{{- end -}}
{{- end -}}
{{- range $section, $keys := $config -}}
{{- $into := get $all $section | default dict -}}
{{- range $key, $value := $keys -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $into $key -}}
{{- else -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- end -}}
{{- $_ := set $all $section $into -}}
{{- end -}}
{{- range $section, $keys := $all -}}
{{- if not $keys -}}
{{- $_ := unset $all $section -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* What of the configuration needs a restart. The coordinators read the other keys again by themselves; test/deploy holds this list. */}}
{{- define "msghandler.restartConfig" -}}
{{- $all := include "msghandler.config" . | fromYaml -}}
{{- $reloaded := dict
  "grpc" (list "callers")
  "access" (list "viewers" "readers" "operators" "admins")
  "callbacks" (list "allow" "networks")
  "limits" (list "unfinished") -}}
{{- $ofProducers := list "callers" "targets" "brokers" "exchanges" "routing_keys" "max_body" "max_unfinished"
  "max_unfinished_bytes" "calls_per_second" -}}
{{- range $section, $keys := $reloaded -}}
{{- range $keys -}}
{{- $_ := unset (get $all $section | default dict) . -}}
{{- end -}}
{{- end -}}
{{- range $producer, $settings := get $all "producers" | default dict -}}
{{- range $ofProducers -}}
{{- $_ := unset $settings . -}}
{{- end -}}
{{- if not $settings -}}
{{- $_ := unset (get $all "producers") $producer -}}
{{- end -}}
{{- end -}}
{{- $_ := unset $all "policy" -}}
{{- range $section, $keys := $all -}}
{{- if not $keys -}}
{{- $_ := unset $all $section -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Go's limit of memory: below that of the pod. */}}
{{- define "msghandler.goMemoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (.Values.resources | default dict) | toString -}}
{{- if .Values.goMemoryLimit -}}
{{- .Values.goMemoryLimit -}}
{{- else if regexMatch "^[0-9]+[MG]i$" $limit -}}
{{- $number := regexFind "^[0-9]+" $limit | int64 -}}
{{- $mebibytes := ternary (mul $number 1024) $number (hasSuffix "Gi" $limit) -}}
{{- printf "%dMiB" (div (mul $mebibytes 900) 1024) -}}
{{- else if $limit -}}
{{- fail (printf "resources.limits.memory is %s: write it in Mi or Gi, or set goMemoryLimit, such as 900MiB" $limit) -}}
{{- end -}}
{{- end -}}

{{/* A duration of Go in milliseconds. */}}
{{- define "msghandler.milliseconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get (dict "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* What is missing or does not go together, all at once. */}}
{{- define "msghandler.check" -}}
{{- $missing := list -}}
{{- $config := .Values.config | default dict -}}
{{- $access := get $config "access" | default dict -}}
{{- $grpc := get $config "grpc" | default dict -}}
{{- $own := .Values.configSecret -}}
{{- if not .Values.image.repository -}}
{{- $missing = append $missing "image.repository: where the image is, such as registry.example.com/msghandler" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.secret) (not .Values.tls.certManager.issuer) -}}
{{- $missing = append $missing "tls.secret: a secret with tls.crt, tls.key and ca.crt; or tls.certManager.issuer" -}}
{{- end -}}
{{- if and .Values.tls.secret .Values.tls.certManager.issuer -}}
{{- $missing = append $missing "either tls.secret or tls.certManager.issuer, and not both" -}}
{{- end -}}
{{- if and $own $config -}}
{{- $missing = append $missing "either config or configSecret, and not both" -}}
{{- end -}}
{{- if or (regexMatch "://[^/@\"\\s]*:[^/@\"\\s]*@|[?&](token|password)=" (toJson $config | replace "\\u0026" "&"))
  (get (get $config "events" | default dict) "webhook_token") -}}
{{- $missing = append $missing "no password in config, which becomes a ConfigMap: put it into a secret of secrets, and name its file, such as config.redis.url_file" -}}
{{- end -}}
{{- if not $own -}}
{{- if not .Values.secrets -}}
{{- $missing = append $missing "secrets: secrets with redis-url, amqp-url, session-key and tokens, such as secrets[0].name=msghandler" -}}
{{- end -}}
{{- if not (or .Values.access.tokens .Values.access.certificates $access.token_file $access.oidc_issuer $grpc.tls_client_ca $access.anonymous) -}}
{{- $missing = append $missing "who may call: access.tokens, access.certificates or config.access.oidc_issuer" -}}
{{- end -}}
{{- $http := get $config "http" | default dict -}}
{{- if not (or .Values.access.tokens $access.token_file $access.oidc_issuer $http.user_header $access.anonymous) -}}
{{- $missing = append $missing "who may use the console, which asks for no certificate: access.tokens, config.access.oidc_issuer or config.http.user_header" -}}
{{- end -}}
{{- if and .Values.access.certificates (not (and .Values.tls.enabled .Values.tls.ca)) -}}
{{- $missing = append $missing "tls.enabled and tls.ca, which access.certificates needs" -}}
{{- end -}}
{{- if and (not .Values.tls.enabled) (or .Values.access.tokens $access.oidc_issuer) -}}
{{- $missing = append $missing "tls.enabled, which access.tokens and config.access.oidc_issuer need" -}}
{{- end -}}
{{- range $section := list "grpc" "http" -}}
{{- if hasKey (get $config $section | default dict) "addr" -}}
{{- $missing = append $missing (printf "no config.%s.addr: the ports and services of the chart lead to the chart's own" $section) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $copies := get (get $config "send" | default dict) "dead_letter_exchange" -}}
{{- range $name, $broker := get $config "brokers" | default dict -}}
{{- $copies = or $copies (get ($broker | default dict) "dead_letter_exchange") -}}
{{- end -}}
{{- range $section, $rule := .Files.Get "files/leases.yaml" | fromYaml -}}
{{- $given := get $config $section | default dict -}}
{{- $timeout := get $given $rule.timeout | default $rule.usual -}}
{{- $lease := $given.lease | default $rule.lease -}}
{{- $least := addf (mulf (ternary $rule.copying $rule.times (not (not $copies))) (include "msghandler.milliseconds" $timeout | float64)) $rule.margin -}}
{{- if lt (include "msghandler.milliseconds" $lease | float64) $least -}}
{{- $missing = append $missing (printf "config.%s.lease of at least %v ms, or a shorter %s (%s): the calls must fit" $section $least $rule.timeout $timeout) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.authorities.configMap .Values.authorities.secret -}}
{{- $missing = append $missing "either authorities.configMap or authorities.secret, and not both" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- $missing = append $missing "ingress.hosts: the names of the console, such as console.example.com" -}}
{{- end -}}
{{- if and .Values.monitoring.monitor (not .Values.monitoring.tokenSecret.name) (not $access.anonymous) -}}
{{- $missing = append $missing "monitoring.tokenSecret.name: a secret with the token of a viewer, which Prometheus shows" -}}
{{- end -}}
{{- if $missing -}}
{{- fail (printf "\n\nmsghandler needs other values:\n- %s\n\ndocs/run/kubernetes.md has examples." (join "\n- " $missing)) -}}
{{- end -}}
{{- end -}}
