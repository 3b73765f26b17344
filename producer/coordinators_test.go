package producer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	goodToken  = "g00d-0123456789abcdef"
	otherToken = "0ther-0123456789abcdef"
)

// counting is a marker store that decides final questions, and counts the calls to the store.
type counting struct {
	*unruly
	calls int // never concurrent
}

func newCounting() *counting {
	c := &counting{}
	c.unruly = &unruly{Store: memory.New(), decides: true, fail: func(string) error { c.calls++; return nil }}
	return c
}

// guarded is a producer with Coordinators on a server of its own, and its log.
type guarded struct {
	markers *counting
	address string
	log     *bytes.Buffer
}

func newGuarded(t *testing.T, coordinators producer.Coordinators, options ...grpc.ServerOption) *guarded {
	t.Helper()
	g := &guarded{markers: newCounting(), log: &bytes.Buffer{}}
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: "127.0.0.1:1", Markers: g.markers, Coordinators: coordinators,
		Logger: slog.New(slog.NewTextHandler(g.log, nil)),
	})
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	g.address = listener.Addr().String()
	server := grpc.NewServer(options...)
	p.Register(server)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-serving
		_ = p.Close(context.Background())
	})
	return g
}

// call makes both calls as a caller with this certificate and these authorization headers, and returns both codes.
func (g *guarded) call(t *testing.T, shown *tls.Config, authorization ...string) (code codes.Code, said string) {
	t.Helper()
	transport := insecure.NewCredentials()
	if shown != nil {
		transport = credentials.NewTLS(shown)
	}
	conn, err := grpc.NewClient(g.address, grpc.WithTransportCredentials(transport))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, value := range authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
	}
	before := g.markers.calls
	api := pb.NewProducerServiceClient(conn)
	_, err = api.Confirm(ctx, &pb.ConfirmRequest{Producer: "orders", Ids: []string{"1001"}, Final: true})
	for name, again := range map[string]func() error{
		"Confirm that is not final": func() error {
			_, err := api.Confirm(ctx, &pb.ConfirmRequest{Producer: "orders", Ids: []string{"1001"}})
			return err
		},
		"DeleteBusiness": func() error {
			_, err := api.DeleteBusiness(ctx, &pb.DeleteBusinessRequest{Producer: "orders", Ids: []string{"1001"}})
			return err
		},
		"Confirm of another producer": func() error { // refused either way, and to a stranger like everything else
			_, err := api.Confirm(ctx, &pb.ConfirmRequest{Producer: "stock", Ids: []string{"1001"}})
			if status.Code(err) == codes.FailedPrecondition {
				return nil
			}
			return err
		},
	} {
		if err2 := again(); status.Code(err2) != status.Code(err) {
			t.Errorf("%s got %v, a final Confirm %v", name, err2, err)
		}
	}
	if refused := err != nil; refused != (g.markers.calls == before) {
		t.Errorf("refused: %t, and the markers were asked %d times", refused, g.markers.calls-before)
	}
	return status.Code(err), status.Convert(err).Message()
}

// A stranger's final Confirm must leave no tombstone.
func TestRefusedConfirmLeavesNoTombstone(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, producer.Coordinators{Tokens: []string{goodToken}})
	if code, _ := g.call(t, nil); code != codes.Unauthenticated {
		t.Errorf("a stranger gets %v", code)
	}
	found, err := g.markers.Store.Lookup(t.Context(), []string{"1001"}, false)
	if err != nil || found["1001"] == marker.RolledBack {
		t.Errorf("a tombstone was planted: %v, %v", found, err)
	}
	if code, said := g.call(t, nil, "Bearer "+goodToken); code != codes.OK {
		t.Errorf("the coordinator gets %v: %s", code, said)
	}
	if n := strings.Count(g.log.String(), "a callback was refused"); n != 1 || strings.Contains(g.log.String(), "1001") {
		t.Errorf("%d lines in the log, want 1 without anything from the request:\n%s", n, g.log)
	}
}

func TestCoordinatorsAreKnownByToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, []byte(otherToken+"\n"), 0o600))
	for name, of := range map[string]producer.Coordinators{
		"two tokens":         {Tokens: []string{goodToken, otherToken}},
		"a token and a file": {Tokens: []string{goodToken}, TokenFile: file},
		"all at once":        {Names: []string{"dns:*"}, Tokens: []string{goodToken}, TokenFile: file},
	} {
		g := newGuarded(t, of)
		for authorization, want := range map[string]codes.Code{
			"Bearer " + goodToken: codes.OK, "bearer " + otherToken: codes.OK,
			"Bearer " + goodToken + "x": codes.Unauthenticated, "Bearer ": codes.Unauthenticated,
			"Basic " + goodToken: codes.Unauthenticated, goodToken: codes.Unauthenticated,
		} {
			if code, said := g.call(t, nil, authorization); code != want || strings.Contains(said+g.log.String(), goodToken) {
				t.Errorf("%s: %q gets %v (%s)", name, authorization, code, said)
			}
		}
		if code, _ := g.call(t, nil, "Bearer nobody's-nobody's-nobody's", "Bearer "+goodToken); code != codes.OK {
			t.Errorf("%s: a good token among two gets %v", name, code)
		}
	}
}

func TestCoordinatorsAreKnownByCertificate(t *testing.T) {
	t.Parallel()
	a, foreign := certstest.NewAuthority(t), certstest.NewAuthority(t)
	optional := a.Server("127.0.0.1")
	optional.ClientAuth = tls.VerifyClientCertIfGiven
	unverified := a.Server("127.0.0.1")
	unverified.ClientAuth = tls.RequestClientCert
	as := func(of *certstest.Authority, names ...string) *tls.Config {
		config := of.Client(names...)
		config.RootCAs = a.Pool()
		return config
	}
	names := []string{"dns:coordinator.shop", "uri:spiffe://shop/msghandler/*"}
	strict := newGuarded(t, producer.Coordinators{Names: names}, grpc.Creds(credentials.NewTLS(optional)))
	either := newGuarded(t, producer.Coordinators{Names: names, Tokens: []string{goodToken}},
		grpc.Creds(credentials.NewTLS(optional)))
	lax := newGuarded(t, producer.Coordinators{Names: names}, grpc.Creds(credentials.NewTLS(unverified)))
	typed := newGuarded(t, producer.Coordinators{Names: []string{"dns:*.coordinators.shop"}},
		grpc.Creds(credentials.NewTLS(optional)))
	for name, c := range map[string]struct {
		at    *guarded
		as    *tls.Config
		token string
		want  codes.Code
		says  string
	}{
		"the coordinator":                  {strict, as(a, "coordinator.shop"), "", codes.OK, ""},
		"the coordinator, by URI":          {strict, as(a, "10.0.0.1", "spiffe://shop/msghandler/2"), "", codes.OK, ""},
		"a neighbour":                      {strict, as(a, "stock.shop"), "", codes.PermissionDenied, `of "dns:stock.shop"`},
		"a neighbour with a token":         {strict, as(a, "stock.shop"), goodToken, codes.Unauthenticated, "token"},
		"a typed name":                     {typed, as(a, "eu.coordinators.shop"), "", codes.OK, ""},
		"a typed name of two labels":       {typed, as(a, "a.eu.coordinators.shop"), "", codes.PermissionDenied, "of"},
		"a name of another type":           {typed, as(a, "spiffe://eu.coordinators.shop"), "", codes.PermissionDenied, "of"},
		"no certificate":                   {strict, as(a), "", codes.Unauthenticated, "neither a token nor"},
		"a neighbour with the right token": {either, as(a, "stock.shop"), goodToken, codes.OK, ""},
		"an unchecked certificate":         {lax, as(foreign, "coordinator.shop"), "", codes.Unauthenticated, "verified"},
	} {
		var authorization []string
		if c.token != "" {
			authorization = []string{"Bearer " + c.token}
		}
		if code, said := c.at.call(t, c.as, authorization...); code != c.want || !strings.Contains(said, c.says) ||
			strings.Contains(said, "coordinator.shop") {
			t.Errorf("%s gets %v (%s), want %v", name, code, said, c.want)
		}
	}
}

// A producer whose callers no setting names refuses them all, at both kinds of servers, and says so.
func TestWithoutCoordinatorsEveryCallIsRefused(t *testing.T) {
	t.Parallel()
	_, err := producer.New(producer.Config{
		Name: "orders", Coordinator: "127.0.0.1:1", CallbackTarget: "orders:7001", Markers: memory.New(),
	})
	if err == nil || !strings.Contains(err.Error(), "Coordinators is empty") {
		t.Errorf("with a port that no one may call, New returns %v", err)
	}
	g := newGuarded(t, producer.Coordinators{}) // the target is in the coordinator's configuration
	for _, shown := range [][]string{nil, {"Bearer "}, {"Bearer " + goodToken}} {
		if code, said := g.call(t, nil, shown...); code != codes.Unauthenticated {
			t.Errorf("a caller who shows %q gets %v: %s", shown, code, said)
		}
	}
	s := serveHTTP(t, producer.Config{}, nil)
	for _, path := range []string{"/confirm", "/deleteBusiness"} {
		code, said := s.post(t, path, `{"producer":"orders","ids":["1001"],"final":true}`)
		if code != http.StatusUnauthorized {
			t.Errorf("%s by HTTP gets %d %s", path, code, said)
		}
	}
	for by, log := range map[string]string{"gRPC": g.log.String(), "HTTP": s.log.String()} {
		if n := strings.Count(log, "level=ERROR msg=\"producer.Config.Coordinators is empty"); n != 1 {
			t.Errorf("%s: %d lines, want 1:\n%s", by, n, log)
		}
	}
	quiet := newGuarded(t, producer.Coordinators{Anyone: true})
	if code, said := quiet.call(t, nil); code != codes.OK || strings.Contains(quiet.log.String(), "Coordinators") {
		t.Errorf("Anyone: got %v (%s), log:\n%s", code, said, quiet.log)
	}
}

func TestBadCoordinatorsAreRefused(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for want, of := range map[string]producer.Coordinators{
		"Coordinators.Anyone contradicts":             {Anyone: true, Names: []string{"dns:*"}},
		`Coordinators.Names holds "[a"`:               {Names: []string{"[a"}},
		`Coordinators.Names holds ""`:                 {Names: []string{""}},
		`"dsn:x", which does not begin with a type`:   {Names: []string{"dsn:x"}},
		`"dns:x ", which begins or ends with a blank`: {Names: []string{"dns:x "}},
		`"{producer}", which holds {producer}`:        {Names: []string{"{producer}"}},
		"Coordinators.Tokens: token 2 has fewer":      {Tokens: []string{goodToken, "s3cret"}},
		"Coordinators.TokenFile: open " + missing:     {TokenFile: missing},
		"Coordinators.Tokens: token 1 holds what":     {Tokens: []string{"s3cret s3cret s3cret"}},
		"Coordinators.Tokens: token 1 has more tha":   {Tokens: []string{strings.Repeat("s3cret", 1000)}},
	} {
		_, err := producer.New(producer.Config{
			Name: "orders", Coordinator: "127.0.0.1:1", Markers: memory.New(),
			Coordinators: of,
		})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
