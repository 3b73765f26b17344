package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// examine runs the doctor on a world and one producer.
func (w *world) examine(p *plainProducer, settings ...string) (said string, status int) {
	w.t.Helper()
	env := append([]string{
		"MSGHANDLER_SERVER=" + w.coordinators[0].grpc, "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		"MSGHANDLER_REDIS_URL=" + w.redis.URL(), "MSGHANDLER_AMQP_URL=" + w.amqp,
	}, settings...)
	return programs.Run(w.t, "msghandler", env, "doctor", "--producer", p.name+"="+p.target)
}

func TestDoctorPassesOnAHealthySystem(t *testing.T) {
	w := newWorld(t)
	w.redis.CLI("CONFIG", "SET", "appendfsync", "always")
	w.startCoordinators(1)
	p := newPlainProducer(t, "honest", w.coordinators[0].grpc, func(p *plainProducer) { p.confirm = unknown })
	said, status := w.examine(p)
	if status != 0 || strings.Contains(said, "WARNING") || strings.Contains(said, "TROUBLE") {
		t.Errorf("exit status %d:\n%s", status, said)
	}
	for _, area := range []string{"configuration", "redis", "rabbitmq", "coordinator", "producer honest"} {
		if !strings.Contains(said, area) {
			t.Errorf("nothing is said of %s:\n%s", area, said)
		}
	}
	// The doctor looked, and changed nothing.
	w.onlyReceipts()
}

// unknown says UNKNOWN of everything.
func unknown(_ context.Context, ids []string) (*pb.ConfirmResponse, error) {
	response := &pb.ConfirmResponse{}
	for _, id := range ids {
		response.Confirmations = append(response.Confirmations, &pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_UNKNOWN})
	}
	return response, nil
}

func TestDoctorReportsEachProblem(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1)
	liar := newPlainProducer(t, "liar", w.coordinators[0].grpc) // the impostor says COMMITTED of everything
	w.redis.CLI("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	w.redis.CLI("CONFIG", "SET", "appendfsync", "everysec")
	w.redis.CLI("SET", "msghandler:{00}:suspect", "1700000000000")
	said, status := w.examine(liar, "MSGHANDLER_SEND_DEAD_LETTER_EXCHANGE=nowhere", "MSGHANDLER_SUBMIT_TRUST=true")
	if status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	for _, want := range []string{
		"evicts keys", "set maxmemory-policy noeviction", "appendfsync everysec", "data rollback detected: 1 of 1 shards",
		"send.dead_letter_exchange nowhere", "submit.trust is true", "says COMMITTED of an id that cannot exist",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("not found: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("the doctor says:\n%s", said)
	}
}

func TestDoctorNamesUnreachableServers(t *testing.T) {
	away := servers.Addresses(t, 3)
	said, status := programs.Run(t, "msghandler", []string{
		"MSGHANDLER_REDIS_URL=redis://" + away[0] + "/0", "MSGHANDLER_AMQP_URL=amqp://guest:secret@" + away[1] + "/",
		"MSGHANDLER_SERVER=" + away[2], "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
	}, "doctor", "--output", "json", "--producer", "gone="+away[2])
	report, _, _ := strings.Cut(said, "msghandler: ") // standard error follows
	var found []struct{ Area, Severity, What, Why, Remedy string }
	if err := json.Unmarshal([]byte(report), &found); err != nil || status != 1 {
		t.Fatalf("exit status %d, %v:\n%s", status, err, said)
	}
	troubles := map[string]string{}
	for _, f := range found {
		if f.Severity != "ok" && (f.Why == "" || f.Remedy == "") {
			t.Errorf("%+v names no reason and no action", f)
		}
		troubles[f.Area] = f.Severity + " " + f.What
	}
	for area, want := range map[string]string{
		"redis": "trouble", "rabbitmq": "trouble", "coordinator": "warning", "producer gone": "trouble",
	} {
		if !strings.HasPrefix(troubles[area], want) {
			t.Errorf("of %s the doctor says %q, want %s", area, troubles[area], want)
		}
	}
	if strings.Contains(said, "secret") {
		t.Errorf("a password is shown:\n%s", said)
	}
}
