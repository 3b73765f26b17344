package config

import (
	"slices"

	"github.com/msghandler/msghandler/internal/ground/typedname"
)

// checkAccess rejects rules about names that no source proves, and tokens that would cross a network in the clear.
func (l *loading) checkAccess() {
	a, g := &l.config.Access, &l.config.GRPC
	for _, of := range []struct {
		key   string
		globs []string
	}{
		{"access.viewers", a.Viewers},
		{"access.readers", a.Readers},
		{"access.operators", a.Operators},
		{"access.admins", a.Admins},
		{"grpc.callers", g.Callers},
	} {
		l.checkSources(of.key, of.globs)
	}
	for name, p := range l.config.Producers {
		l.checkSources("producers."+name+".callers", p.Callers)
	}
	if a.Tokens() && g.Certificates.Cert == "" && !isLoopback(g.Addr) {
		key := "access.token_file"
		if a.TokenFile == "" {
			key = "access.oidc_issuer"
		}
		l.relation(key, "needs TLS, because tokens would cross the network in the clear, and who reads one can use it: set "+
			"grpc.tls_cert and grpc.tls_key, or a loopback address in %s", l.says("grpc.addr"))
	}
}

// checkSources rejects globs on names that no configured source of identities proves.
func (l *loading) checkSources(key string, globs []string) {
	c := &l.config
	for _, of := range []struct {
		types  []string
		there  bool
		remedy string
	}{
		{[]string{"token"}, c.Access.TokenFile != "", "names tokens, and there are none: set access.token_file"},
		{[]string{"jwt"}, c.Access.OIDC.Issuer != "", "names JSON Web Tokens, and there are none: set access.oidc_issuer"},
		{[]string{"proxy"}, c.HTTP.UserHeader != "", "names users of a proxy, and none names them: set http.user_header"},
		{
			[]string{"dns", "uri", "email", "cn"},
			c.GRPC.Certificates.CA != "",
			"names certificates, and clients are asked for none: set grpc.tls_client_ca",
		},
	} {
		isOf := func(glob string) bool { return slices.Contains(of.types, typedname.TypeOf(glob)) }
		if i := slices.IndexFunc(globs, isOf); i >= 0 && !of.there {
			l.relation(key, "holds %s, which %s", globs[i], of.remedy)
		}
	}
}
