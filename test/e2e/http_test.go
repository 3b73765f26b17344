package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// example is a command of docs/reference/http.md and the answer that the page shows.
type example struct{ command, answer string }

// examples are the commands of a kind in docs/reference/http.md.
func examples(t *testing.T, kind string) (all []example) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/http.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```" + kind + "\n(.*?)```\n\n```json\n(.*?)```\n")
	for _, found := range block.FindAllStringSubmatch(string(page), -1) {
		all = append(all, example{found[1], found[2]})
	}
	if n := strings.Count(string(page), "```"+kind+"\n"); n == 0 || n != len(all) {
		t.Fatalf("docs/reference/http.md has %d commands of the kind %s and %d answers", n, kind, len(all))
	}
	return all
}

// runExamples runs the commands in one shell after the other, with another address, and compares the answers.
func runExamples(t *testing.T, dir, kind, address string) {
	t.Helper()
	var before strings.Builder // the variables that a reader's shell keeps
	for _, e := range examples(t, kind) {
		command := strings.ReplaceAll(e.command, "127.0.0.1:9090", address)
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", before.String()+command)
		cmd.Dir = dir
		output, err := cmd.CombinedOutput()
		var want, got any
		if err := json.Unmarshal([]byte(e.answer), &want); err != nil {
			t.Fatalf("the page's answer to\n%s: %v", e.command, err)
		}
		if err != nil || json.Unmarshal(output, &got) != nil || !holds(got, want) {
			t.Errorf("%sgot %s (%v), want %s", command, output, err, e.answer)
		}
		for line := range strings.Lines(command) {
			if regexp.MustCompile(`^[A-Z]+=`).MatchString(line) {
				before.WriteString(line)
			}
		}
	}
}

// holds reports whether an answer has everything that a page shows of it.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		all, ok := got.(map[string]any)
		for key, value := range want {
			ok = ok && holds(all[key], value)
		}
		return ok
	case []any:
		all, ok := got.([]any)
		if !ok || len(all) < len(want) {
			return false
		}
		for i, value := range want {
			ok = ok && holds(all[i], value)
		}
		return ok
	}
	return got == want
}

func TestHTTPPageRunsAsWritten(t *testing.T) {
	t.Parallel()
	t.Run("flow", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		channel := w.channel()
		if _, err := channel.QueueDeclare("paid", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		w.startCoordinators(1, "MSGHANDLER_PRODUCERS_ORDERS_TRUST=true", "MSGHANDLER_PRODUCERS_ORDERS_TARGET=127.0.0.1:9000",
			"MSGHANDLER_CONFIRM_AFTER=1m")
		runExamples(t, w.dir, "sh", w.coordinators[0].grpc)
		delivered, ok, err := channel.Get("paid", true)
		if err != nil || !ok || string(delivered.Body) != `{"order":1001}` || delivered.MessageId != "1001" ||
			delivered.ContentType != "application/json" || delivered.Headers["kind"] != "order-paid" {
			t.Errorf("the consumer got %+v, %t, %v", delivered, ok, err)
		}
		if _, more, err := channel.Get("paid", true); more || err != nil {
			t.Errorf("the consumer got another message: %v", err)
		}
		w.coordinators[0].Stop(30 * time.Second)
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		s := newSecured(t)
		certFile, keyFile := s.Issue("orders.shop")
		for name, file := range map[string]string{"ca.pem": s.File, "orders.crt": certFile, "orders.key": keyFile} {
			if err := os.Symlink(file, filepath.Join(s.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		runExamples(t, s.dir, "sh test=TestHTTPPageRunsAsWritten", s.coordinators[0].grpc)
	})
}
