package certs_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/proto/certs"
)

const (
	oldToken = "0ld-5ecret-0123456789"
	newToken = "new-5ecret-0123456789"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// A rotation: the new token is accepted beside the old one, then shown, then the old one is removed.
func TestTokensRotateWithoutARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		writeFile(t, path, "# of the shop\n\n  "+oldToken+"\t\r\n")
		var log bytes.Buffer
		tokens, err := certs.OpenTokens(path, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		stands := func(when, first string, accepted ...string) {
			t.Helper()
			time.Sleep(time.Second) // in a bubble
			if got := tokens.First(); got != first {
				t.Errorf("%s: %q is shown", when, got)
			}
			for _, token := range []string{oldToken, newToken} {
				if got := tokens.Accepts(token); got != strings.Contains(strings.Join(accepted, " "), token) {
					t.Errorf("%s: %s accepted: %t", when, token, got)
				}
			}
		}
		stands("at first", oldToken, oldToken)
		writeFile(t, path, oldToken+"\n"+newToken)
		stands("with both", oldToken, oldToken, newToken)
		writeFile(t, path, newToken+"\n"+oldToken)
		stands("the other way round", newToken, oldToken, newToken)
		writeFile(t, path, newToken+"\n")
		stands("with the new one", newToken, newToken)
		for name, bad := range map[string]string{
			"an empty file": "\n", "a short token": "5ecret", "two words": "a 5ecret of two words",
		} {
			writeFile(t, path, bad)
			stands(name, newToken, newToken)
		}
		must(t, os.Remove(path))
		for range 2 {
			stands("without a file", newToken, newToken)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 4 {
			t.Errorf("four causes make %d lines", n)
		}
		if strings.Contains(log.String(), "5ecret") {
			t.Errorf("the log shows a token:\n%s", &log)
		}
	})
}

func TestBadTokensAreRefusedNotQuoted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	for content, want := range map[string]string{
		"":                                      "holds no token",
		"# nothing":                             "holds no token",
		oldToken + "\n5ecret":                   "token 2 has fewer than 16 characters",
		strings.Repeat("5ecret", 1000):          "token 1 has more than 4096 characters",
		"a 5ecret of several words":             "token 1 holds what cannot stand in a header",
		"5ecret-5ecret-5ecret-\x1b[2J":          "token 1 holds what cannot stand in a header",
		oldToken + "\n" + newToken + "\n\u00e9": "token 3 has fewer",
	} {
		writeFile(t, path, content)
		_, err := certs.OpenTokens(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "5ecret") {
			t.Errorf("%.40q: got %v", content, err)
		}
	}
	if _, err := certs.OpenTokens(path+".missing", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("without a file: %v", err)
	}
}

func TestAnEmptySetAcceptsNothing(t *testing.T) {
	t.Parallel()
	if (certs.TokenSet{}).Accepts("") || (certs.TokenSet{}).Accepts(oldToken) {
		t.Error("a token was accepted")
	}
	set, err := certs.NewTokenSet([]string{oldToken, newToken})
	must(t, err)
	for token, want := range map[string]bool{
		oldToken: true, newToken: true, "": false, oldToken + newToken: false, oldToken[:len(oldToken)-1]: false,
		strings.ToUpper(oldToken): false,
	} {
		if set.Accepts(token) != want {
			t.Errorf("%q accepted: %t", token, !want)
		}
	}
}

func TestTokenIsFoundInMetadata(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"Bearer " + oldToken: oldToken, "bEARER  " + oldToken: oldToken, "Basic " + oldToken: "",
		oldToken: "", "Bearer ": "", "Bearer": "",
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", value))
		if got := strings.Join(certs.ShownTokens(ctx), ","); got != want {
			t.Errorf("%q: found %q", value, got)
		}
	}
	sent, _ := metadata.FromOutgoingContext(certs.WithToken(t.Context(), oldToken))
	got := certs.ShownTokens(metadata.NewIncomingContext(context.Background(), sent))
	if len(got) != 1 || got[0] != oldToken {
		t.Errorf("the sent token is found as %q", got)
	}
	if _, any := metadata.FromOutgoingContext(certs.WithToken(t.Context(), "")); any {
		t.Error("an empty token is sent")
	}
}
