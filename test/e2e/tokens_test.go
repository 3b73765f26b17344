package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// A producer and an operator are known by tokens of the shipped commands, over TLS. Others, and revoked tokens, get
// nothing.
func TestTokensSayWhoCalls(t *testing.T) {
	w, a, dir := newWorld(t), certstest.NewAuthority(t), t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	token := func(name string, flags ...string) (file string) {
		made, status := programs.Run(t, "msghandler", nil,
			append([]string{"token", "new", name, "--file", tokens}, flags...)...)
		i := strings.Index(made, "mh_")
		if status != 0 || i < 0 {
			t.Fatalf("token new %s ends with %d: %s", name, status, made)
		}
		file = filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(strings.Fields(made[i:])[0]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	admin, orders := token("anna", "--role", "admin"), token("shop", "--producer", "orders")
	certFile, keyFile := a.Issue("127.0.0.1")
	w.startCoordinators(1, "MSGHANDLER_GRPC_TLS_CERT="+certFile, "MSGHANDLER_GRPC_TLS_KEY="+keyFile,
		"MSGHANDLER_ACCESS_TOKEN_FILE="+tokens)
	if _, err := w.channel().QueueDeclare("tokens", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	config := a.Client()
	config.Certificates = nil
	attending := func(name, file string) *producer.Producer {
		p, err := producer.New(producer.Config{
			Name: name, Coordinator: w.targets(), TLS: config, TokenFile: file, Markers: memory.New(),
			SendTimeout: 20 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close(context.Background()) })
		return p
	}
	send := func(p *producer.Producer, id string) error {
		return p.Send(t.Context(), producer.Message{ID: id, RoutingKey: "tokens", Body: []byte(id)},
			func(context.Context) error { return nil })
	}
	shop := attending("orders", orders)
	if err := send(shop, "1"); err != nil {
		t.Fatal(err)
	}
	if got := w.get(w.channel(), "tokens"); string(got.Body) != "1" { // it was confirmed over the stream
		t.Errorf("got %q", got.Body)
	}
	for name, p := range map[string]*producer.Producer{
		"nobody": attending("orders", ""), "another": attending("stock", orders),
	} {
		if err := send(p, name); !errors.Is(err, producer.ErrRejected) {
			t.Errorf("%s sends: %v", name, err)
		}
	}
	asks := func(env ...string) (string, int) {
		return programs.Run(t, "msghandler",
			append(env, "MSGHANDLER_SERVER="+w.coordinators[0].grpc, "MSGHANDLER_TLS_CA="+a.File), "stats")
	}
	if said, status := asks("MSGHANDLER_TOKEN_FILE=" + admin); status != 0 {
		t.Errorf("an admin gets %d: %s", status, said)
	}
	for name, env := range map[string]string{"nobody": "", "a producer": "MSGHANDLER_TOKEN_FILE=" + orders} {
		if said, status := asks(env); status != 1 {
			t.Errorf("%s gets %d: %s", name, status, said)
		}
	}
	if said, status := programs.Run(t, "msghandler", nil, "token", "revoke", "shop", "--file", tokens); status != 0 {
		t.Fatal(said)
	}
	servers.Eventually(t, 30*time.Second, "the revoked token is refused", func() bool {
		return errors.Is(send(shop, time.Now().String()), producer.ErrRejected)
	})
	for _, name := range []string{admin, orders} {
		secret, err := os.ReadFile(name)
		if err != nil || strings.Contains(w.coordinators[0].Tail(), strings.TrimSpace(string(secret))) {
			t.Errorf("the log has a token (%v)", err)
		}
	}
}
