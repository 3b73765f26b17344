package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// audited is a coordinator with certificates, which logs errors only, with a message of orders.
func audited(t *testing.T) *secured {
	t.Helper()
	s := &secured{world: newWorldOn(t, embeddedtest.Broker(t)), Authority: certstest.NewAuthority(t)}
	s.certFile, s.keyFile = s.Issue("127.0.0.1")
	s.startCoordinators(1,
		"MSGHANDLER_GRPC_TLS_CERT="+s.certFile, "MSGHANDLER_GRPC_TLS_KEY="+s.keyFile, "MSGHANDLER_GRPC_TLS_CLIENT_CA="+s.File,
		"MSGHANDLER_ACCESS_ADMINS=dns:*.ops.shop", "MSGHANDLER_GRPC_CALLERS=dns:{producer}.shop",
		"MSGHANDLER_LOG_LEVEL=error", "MSGHANDLER_CONFIRM_AFTER=1h")
	conn, err := grpc.NewClient(s.coordinators[0].grpc,
		grpc.WithTransportCredentials(credentials.NewTLS(s.Client("orders.shop"))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = msghandlerv1.NewMessageHandlerServiceClient(conn).SendHalfMessage(t.Context(),
		&msghandlerv1.SendHalfMessageRequest{
			Producer: "orders", Message: &msghandlerv1.Message{Id: "1", RoutingKey: "audited", Body: []byte("secret body")},
			CallbackTarget: "127.0.0.1:1",
		})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Who discarded which message, from where, why and when: the log of level error says it, and so does the command, also
// after a restart of the coordinator. A refused discard is told too.
func TestAuditTellsWhoDiscardedWhat(t *testing.T) {
	s := audited(t)
	if said, status := s.asks("orders.shop", "discard", "orders/1", "--maybe-committed", "--reason", "mine"); status == 0 {
		t.Errorf("a producer discards:\n%s", said)
	}
	said, status := s.asks("anna.ops.shop", "discard", "orders/1", "--maybe-committed", "--reason",
		"a test order\nlevel=AUDIT forged")
	if status != 0 {
		t.Fatalf("got %d:\n%s", status, said)
	}
	c := s.coordinators[0]
	for _, line := range []string{`level=AUDIT msg="audit: change made"`, `level=AUDIT msg="audit: call refused`} {
		c.Says(line, 10*time.Second)
	}
	if c.HasSaid("\nlevel=AUDIT") || c.HasSaid("secret body") || c.HasSaid("level=INFO") {
		t.Errorf("the log is\n%s", c.Tail())
	}
	c.Stop(20 * time.Second) // what is not stored yet is stored now
	s.restart(c, "MSGHANDLER_GRPC_TLS_CERT="+s.certFile, "MSGHANDLER_GRPC_TLS_KEY="+s.keyFile,
		"MSGHANDLER_GRPC_TLS_CLIENT_CA="+s.File, "MSGHANDLER_ACCESS_ADMINS=dns:*.ops.shop",
		"MSGHANDLER_GRPC_CALLERS=dns:{producer}.shop")
	c.Ready(c.http)
	var document struct {
		Records []struct {
			Time                                                         time.Time
			By, From, Via, Kind, Action, Producer, Reason, Result, Cause string
			Names                                                        []string
			Count                                                        int
		}
	}
	said, status = s.asks("anna.ops.shop", "audit", "--since", "1h", "--output", "json", "--action", "iscard")
	if err := json.Unmarshal([]byte(said), &document); err != nil || status != 0 || len(document.Records) != 2 {
		t.Fatalf("got %d, %v:\n%s", status, err, said)
	}
	change, refusal := document.Records[0], document.Records[1]
	if age := time.Since(change.Time); change.By != "dns:anna.ops.shop" || change.Kind != "certificate" ||
		!strings.HasPrefix(change.From, "127.0.0.1:") || change.Via != "grpc" || change.Action != "discard" ||
		strings.Join(change.Names, " ") != "orders/1" || change.Reason != `a test order\nlevel=AUDIT forged` ||
		change.Result != "done" || age < 0 || age > time.Minute {
		t.Errorf("the record of the change is %+v", change)
	}
	if refusal.By != "dns:orders.shop" || refusal.From != "127.0.0.1" || refusal.Result != "refused" ||
		refusal.Action != "/msghandler.admin.v1.AdminService/DiscardMessages" || refusal.Count < 1 {
		t.Errorf("the record of the refusal is %+v", refusal)
	}
	if said, status := s.asks("anna.ops.shop", "audit", "--refused", "--by", "orders.shop"); status != 0 ||
		!strings.Contains(strings.Join(strings.Fields(said), " "), "DiscardMessages refused") ||
		strings.Contains(said, "anna.ops.shop ") {
		t.Errorf("got %d:\n%s", status, said)
	}
	// A producer is no viewer, and its question is a refusal as well.
	if said, status := s.asks("orders.shop", "audit"); status != 1 || !strings.Contains(said, "may not use ListAudit") {
		t.Errorf("got %d:\n%s", status, said)
	}
	servers.Eventually(t, 20*time.Second, "the refusal is kept", func() bool {
		said, _ := s.asks("anna.ops.shop", "audit", "--refused", "--action", "ListAudit")
		return strings.Contains(said, "ListAudit")
	})
}
