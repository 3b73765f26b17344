package config

import (
	"github.com/msghandler/msghandler/internal/ground/typedname"
)

func (g *GRPC) keys() []Key {
	return []Key{
		{
			Name: "grpc.addr", Default: "127.0.0.1:9090", value: text(&g.Addr, checkAddr),
			Meaning: "Listen address of the API, by gRPC and by HTTP with JSON, as host:port. Producers and " +
				"the admin commands connect here.",
		},
		{
			Name: "grpc.reflection", Default: "false", value: flag(&g.Reflection),
			Meaning: "Serve gRPC reflection, so that tools such as grpcurl can list the API.",
		},
		{
			Name: "grpc.tls_cert", value: text(&g.Certificates.Cert, checkFile),
			Meaning: "Certificate chain of the gRPC API, a PEM file. With grpc.tls_key set, the API accepts TLS only. " +
				"Certificate files are read again when they change.",
		},
		{
			Name: "grpc.tls_key", value: text(&g.Certificates.Key, checkFile),
			Meaning: "Private key of grpc.tls_cert, a PEM file.",
		},
		{
			Name: "grpc.tls_client_ca", value: text(&g.Certificates.CA, checkFile),
			Meaning: "Certificate authorities for client certificates, a PEM file. With it, every client must present a " +
				"certificate, unless access.token_file or access.oidc_issuer is set. A certificate alone grants nothing: " +
				"grpc.callers and the lists of access do. None: clients need no certificate.",
		},
		{
			Name: "grpc.tls_crl", value: text(&g.CRL, checkFile),
			Meaning: "Certificate revocation lists of the authorities of grpc.tls_client_ca, a PEM file. The file is read " +
				"again when it changes, and connections of revoked certificates are closed within half a minute. A list " +
				"that is past its next update still counts.",
		},
		{
			Name: "grpc.callers", value: list(&g.Callers, 0, typedname.CheckCaller),
			Meaning: "Who may call as a producer: globs as in access.viewers, where {producer} is the producer's name, such " +
				"as dns:{producer}.shop.svc or token:{producer}. producers.<name>.callers overrides this for one producer.",
		},
	}
}

func (h *HTTP) keys() []Key {
	keys := []Key{
		{
			Name: "http.addr", Default: "127.0.0.1:9091", value: text(&h.Addr, checkAddr),
			Meaning: "Listen address of the console, /metrics, /healthz and /readyz, as host:port.",
		},
		{
			Name: "http.hosts", value: list(&h.Hosts, 0, checkHost),
			Meaning: "Host names under which browsers open the console, such as console.example.com, without ports. IP " +
				"addresses, localhost and the host of http.addr are always accepted; under any other name the console is " +
				"not shown.",
		},
		{
			Name: "http.public_url", value: text(&h.PublicURL, checkPublicURL),
			Meaning: "URL under which browsers open the console, such as https://console.example.com. Its host counts as " +
				"one of http.hosts. A login by the issuer returns there. None: the name that the browser used.",
		},
		{
			Name: "http.tls_cert", value: text(&h.Certificates.Cert, checkFile),
			Meaning: "Certificate chain of the console, a PEM file. With http.tls_key set, http.addr accepts HTTPS only, " +
				"for /metrics and the probes too. Certificate files are read again when they change.",
		},
		{
			Name: "http.tls_key", value: text(&h.Certificates.Key, checkFile),
			Meaning: "Private key of http.tls_cert, a PEM file.",
		},
		{
			Name: "http.read_only", Default: "false", value: flag(&h.ReadOnly),
			Meaning: "Disable retry and discard in the console, for every role.",
		},
		{
			Name: "http.bodies", Default: "true", value: flag(&h.Bodies),
			Meaning: "Show bodies and headers of messages, in the console and by the admin API, to those who may read " +
				"them. false: they are hidden from all callers.",
		},
	}
	return append(keys, h.loginKeys()...)
}

// loginKeys are the keys of who uses the console.
func (h *HTTP) loginKeys() []Key {
	return []Key{
		{
			Name: "http.session_key_file", value: text(&h.SessionKeyFile, checkFile),
			Meaning: "File with the secret that encrypts session cookies, at least 32 characters: openssl rand -hex 32. " +
				"Coordinators behind one name need the same. None: a random secret at each start, which ends all sessions.",
		},
		{
			Name: "http.oidc_client_id", value: text(&h.OIDCClientID, checkToken),
			Meaning: "Client id of the console at access.oidc_issuer. With it, people log in to the console by the issuer. " +
				"The redirect URL to register is the console's URL with the path /login/callback.",
		},
		{
			Name: "http.oidc_client_secret_file", value: text(&h.OIDCClientSecretFile, checkFile),
			Meaning: "File with the client secret for http.oidc_client_id. None: a public client. PKCE is used in both cases.",
		},
		{
			Name: "http.oidc_scopes", Default: "openid, profile, email", value: list(&h.OIDCScopes, 1, checkToken),
			Meaning: "Scopes that a login asks the issuer for, with openid. Add the scope that gives the roles, where the " +
				"issuer has one.",
		},
		{
			Name: "http.user_header", value: text(&h.UserHeader, checkHeader),
			Meaning: "Header in which a proxy with a login of its own names the user, such as X-Forwarded-User. Rules match " +
				"the user as proxy:NAME. Needs http.trusted_proxies: the header counts for nothing from other addresses.",
		},
		{
			Name: "http.trusted_proxies", value: list(&h.TrustedProxies, 0, checkCIDR),
			Meaning: "CIDRs of the proxies whose http.user_header is believed, matched on the address of the connection. The " +
				"proxy must remove the header from its clients' requests.",
		},
	}
}

func (r *Redis) keys() []Key {
	return []Key{
		{
			Name: "redis.url", Default: "redis://127.0.0.1:6379/0", Secret: true, value: text(&r.URL, checkRedisURL),
			Meaning: "The Redis that holds the messages: redis:// or rediss://; several addresses (host:port,host:port) for " +
				"Redis Cluster; ?master=NAME for Sentinel.",
		},
		{
			Name: "redis.prefix", Default: "msghandler", value: text(&r.Prefix, checkPrefix),
			Meaning: "Prefix of every key in Redis. Coordinators with the same prefix share the messages.",
		},
		{
			Name: "redis.shards", Default: "0", value: whole(&r.Shards, 0, 1024),
			Meaning: "Number of parts of the data, for Redis Cluster. The number is stored with the data, and the start fails " +
				"if the two differ. 0: the stored number; new data get 16 parts on a Cluster and one elsewhere.",
		},
		{
			Name: "redis.min_replicas", Default: "0", value: whole(&r.MinReplicas, 0, 10),
			Meaning: "Replicas that must have a half message (WAIT) before the producer gets OK. More replicas narrow the " +
				"window in which a failover loses a message; they do not close the window.",
		},
		{
			Name: "redis.allow_unsafe", Default: "false", value: flag(&r.AllowUnsafe),
			Meaning: "Start although settings of Redis break the promises, such as an eviction policy. The findings are still " +
				"logged.",
		},
	}
}

func (a *AMQP) keys() []Key {
	return []Key{
		{ //nolint:gosec // RabbitMQ's own default
			Name: "amqp.url", Default: "amqp://guest:guest@127.0.0.1:5672/", Secret: true,
			value: addresses(&a.URLs, checkAMQPURL),
			Meaning: "The RabbitMQ that messages are published to: amqp:// or amqps://; several URLs for a cluster, tried in " +
				"turn.",
		},
	}
}

func (c *Callbacks) keys() []Key {
	return []Key{
		{
			Name: "callbacks.allow", value: list(&c.Allow, 0, checkAllow),
			Meaning: "Callback targets that may be called: globs on host:port, such as *.orders.svc:9000. A URL without a " +
				"port has port 80 or 443. With none, no producer can send messages. A localhost target also needs a loopback " +
				"network in callbacks.networks.",
		},
		{
			Name: "callbacks.networks", value: list(&c.Networks, 0, checkCIDR),
			Meaning: "CIDRs that must contain the resolved address of a callback target, such as 10.0.0.0/8. None: all public " +
				"addresses. A literal address that callbacks.allow names needs no entry here. Addresses of cloud metadata, " +
				"reserved addresses, multicast and the coordinator's own listeners are never called.",
		},
		{
			Name: "callbacks.moved", value: list(&c.Moved, 0, checkMoved),
			Meaning: "Producers that have moved, as OLD=NEW: Confirm calls for messages with the callback target OLD, stored " +
				"ones included, go to NEW, which callbacks.allow must name. Example: old.svc:9000=new.svc:9000. " +
				"Both may be URLs.",
		},
		{
			Name: "callbacks.tls", Default: "false", value: flag(&c.TLS),
			Meaning: "Call producers with TLS; their certificates must be for the host of the callback target. Targets of " +
				"http:// are refused then. A target of https:// is called with TLS always. producers.<name>.tls overrides " +
				"this for one producer.",
		},
		{
			Name: "callbacks.tls_ca", value: text(&c.Certificates.CA, checkFile),
			Meaning: "Certificate authorities for producers' certificates, a PEM file. None: the authorities of the system.",
		},
		{
			Name: "callbacks.tls_cert", value: text(&c.Certificates.Cert, checkFile),
			Meaning: "Client certificate for producers that ask for one, a PEM file.",
		},
		{
			Name: "callbacks.tls_key", value: text(&c.Certificates.Key, checkFile),
			Meaning: "Private key of callbacks.tls_cert, a PEM file.",
		},
		{
			Name: "callbacks.token_file", value: text(&c.TokenFile, checkFile),
			Meaning: "File with the bearer token that authenticates a coordinator to producers (Authorization: Bearer). The " +
				"token is the first line that is not empty and does not begin with #. The file is read again when it " +
				"changes. producers.<name>.token_file overrides this for one producer.",
		},
	}
}
