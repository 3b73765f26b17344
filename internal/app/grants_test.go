package app_test

import (
	"crypto/tls"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// deeds are what callers try, each by its letter: store a message as producer orders, and as stock; look at counts;
// discard.
var deeds = []struct {
	letter string
	try    func(*testing.T, *grpc.ClientConn, string) error
}{
	{"o", func(t *testing.T, conn *grpc.ClientConn, token string) error {
		return storeAs(t, conn, token, "orders")
	}},
	{"s", func(t *testing.T, conn *grpc.ClientConn, token string) error { return storeAs(t, conn, token, "stock") }},
	{"c", func(t *testing.T, conn *grpc.ClientConn, token string) error {
		t.Helper()
		_, err := adminv1.NewAdminServiceClient(conn).GetStats(
			certs.WithToken(t.Context(), token), &adminv1.GetStatsRequest{})
		return err
	}},
	{"d", func(t *testing.T, conn *grpc.ClientConn, token string) error {
		t.Helper()
		names := []*adminv1.MessageName{{Producer: "stock", Id: "none"}}
		_, err := adminv1.NewAdminServiceClient(conn).DiscardMessages(certs.WithToken(t.Context(), token),
			&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: names}, Reason: "a test"})
		return err
	}},
}

func storeAs(t *testing.T, conn *grpc.ClientConn, token, producer string) error {
	t.Helper()
	_, err := msghandlerv1.NewMessageHandlerServiceClient(conn).SendHalfMessage(certs.WithToken(t.Context(), token),
		&msghandlerv1.SendHalfMessageRequest{
			Producer: producer, CallbackTarget: "127.0.0.1:1",
			Message: &msghandlerv1.Message{Id: "1", RoutingKey: "q", Body: []byte("x")},
		})
	return err
}

// What no key grants is denied: a table of configurations, and in each what a stranger, two certificates of the
// authority and a token may do. Only a loopback without any source of identities is open.
func TestWhatNoKeyGrantsIsDenied(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	tokens, token := tokenOf(t, "ci", "role=viewer producers=orders")
	cert, key := authority.Issue("127.0.0.1")
	certificates := func(c *config.Config) {
		c.GRPC.Certificates = config.Certificates{Cert: cert, Key: key, CA: authority.File}
	}
	const all, none = "oscd", ""
	for what, tc := range map[string]struct {
		edit []func(*config.Config)
		// The rights of a stranger, of orders.shop, of reporting.shop, and of the token. Refused is no right at all.
		stranger, orders, reporting, token string
	}{
		"no source": {nil, all, all, all, all},
		"certificates alone": {
			[]func(*config.Config){certificates}, none, none, none, none,
		},
		"certificates and callers": {
			[]func(*config.Config){certificates, func(c *config.Config) { c.GRPC.Callers = []string{"dns:{producer}.shop"} }},
			none, "o", none, none,
		},
		"certificates and admins": {
			[]func(*config.Config){certificates, func(c *config.Config) { c.Access.Admins = []string{"dns:orders.shop"} }},
			none, "cd", none, none,
		},
		"certificates and callers of a producer": {
			[]func(*config.Config){certificates, func(c *config.Config) {
				c.Producers = map[string]config.Producer{"stock": {Callers: []string{"dns:orders.shop"}}}
			}},
			none, "s", none, none,
		},
		"certificates and strangers": {
			[]func(*config.Config){certificates, func(c *config.Config) { c.Access.Anonymous = true }}, none, none, none, none,
		},
		"tokens": {
			[]func(*config.Config){func(c *config.Config) { c.Access.TokenFile = tokens }}, none, none, none, "oc",
		},
		"tokens and strangers": {
			[]func(*config.Config){func(c *config.Config) { c.Access.TokenFile, c.Access.Anonymous = tokens, true }},
			all, all, all, "oc",
		},
		"tokens and certificates": {
			[]func(*config.Config){certificates, func(c *config.Config) { c.Access.TokenFile = tokens }},
			none, none, none, "oc",
		},
		"a proxy of the console": {
			[]func(*config.Config){func(c *config.Config) {
				c.HTTP.UserHeader, c.HTTP.TrustedProxies = "X-User", []string{"10.0.0.1/32"}
			}},
			none, none, none, none,
		},
		"strangers": {[]func(*config.Config){func(c *config.Config) { c.Access.Anonymous = true }}, all, all, all, all},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			settings := settings(tc.edit...)
			r := start(t, settings)
			r.awaitReady(t)
			secured := settings.GRPC.Certificates.Cert != ""
			for _, of := range []struct{ who, name, token, may string }{
				{"a stranger", "", "", tc.stranger},
				{"orders.shop", "orders.shop", "", tc.orders},
				{"reporting.shop", "reporting.shop", "", tc.reporting},
				{"the token", "", token, tc.token},
			} {
				with := insecure.NewCredentials()
				if secured {
					client := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool()}
					if of.name != "" {
						client = authority.Client(of.name)
					}
					with = credentials.NewTLS(client)
				}
				if got := rightsOf(t, r.GRPCAddr(), with, of.token); got != of.may {
					t.Errorf("%s may do %q, want %q", of.who, got, of.may)
				}
			}
		})
	}
}

// rightsOf are the letters of the deeds that a caller may do.
func rightsOf(t *testing.T, address string, with credentials.TransportCredentials, token string) (letters string) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must.Succeed(t, err)
	conn, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(with))
	must.Succeed(t, err)
	defer conn.Close()
	for _, deed := range deeds {
		err := deed.try(t, conn, token)
		switch status.Code(err) {
		case codes.OK, codes.NotFound:
			letters += deed.letter
		case codes.PermissionDenied, codes.Unauthenticated, codes.Unavailable: // without a certificate no handshake ends
		default:
			t.Errorf("%s: %v", deed.letter, err)
		}
	}
	return letters
}
