package oidc_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/test/issuer"
)

// FuzzAuthenticate shows any text as a token. Only JWTs of the issuer are accepted, and no error quotes much of a text.
func FuzzAuthenticate(f *testing.F) {
	of := issuer.Start(f)
	source := newSource(f, config(of))
	viewer := of.JWT("anna", audience, map[string]any{"roles": "viewer"})
	f.Add(viewer)
	part := strings.Split(viewer, ".")
	f.Add(base64url(`{"alg":"none"}`) + "." + part[1] + ".")
	admin := `{"iss":"` + of.URL + `","aud":"msghandler","sub":"anna","roles":"admin"}`
	f.Add(part[0] + "." + base64url(admin) + "." + part[2])
	f.Add(base64url(`{"alg":"ES256","crit":["b64"],"b64":false}`) + "." + part[1] + "." + part[2])
	f.Add("mh_")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := source.Authenticate(t.Context(), token)
		switch {
		case err == nil && (got.Name != "jwt:anna" || got.Role != access.Viewer):
			t.Errorf("%q gives %+v", token, got)
		case err != nil && (got.Name != "" || len(err.Error()) > 500):
			t.Errorf("%q gives %+v with %v", token, got, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	for _, algorithm := range []string{"ES256", "RS256"} {
		of := issuer.Start(b)
		if algorithm == "RS256" {
			of.AddRSAKey()
		}
		source := newSource(b, config(of))
		token := of.JWT("anna", audience, map[string]any{"roles": []string{"viewer"}, "producers": []string{"orders"}})
		for name, authenticate := range map[string]func() error{
			"cached":   func() error { _, err := source.Authenticate(b.Context(), token); return err },
			"uncached": func() error { _, err := source.AuthenticateUncached(b.Context(), token); return err },
		} {
			b.Run(algorithm+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := authenticate(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
