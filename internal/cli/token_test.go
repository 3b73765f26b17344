package cli_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/test/must"
)

func TestTokenIsMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	env := []string{"MSGHANDLER_ACCESS_TOKEN_FILE=" + path}
	made := run(env, "token", "new", "ci", "--role=operator", "--producer=orders", "--producer=stock-*", "--expires=90d")
	made.want(t, 0, "mh_", path+" is new, with mode 0600")
	made.want(t, 0, "mh_", "token ci is in "+path+": role operator, producers orders,stock-*, until ")
	secret := strings.TrimSuffix(made.out, "\n")
	if strings.Contains(made.err, secret) || strings.ContainsAny(secret, " \n") {
		t.Errorf("standard error has the token, or standard output has more: %q", made.out)
	}
	file, err := tokenfile.Open(path, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	got, err := file.Authenticate(t.Context(), secret)
	if left := time.Until(got.Expires); err != nil || got.Name != "token:ci" || got.Role != access.Operator ||
		strings.Join(got.Producers, " ") != "orders stock-*" || left > 90*24*time.Hour || left < 90*24*time.Hour-time.Minute {
		t.Errorf("the token's owner is %+v, %v", got, err)
	}

	run(env, "token", "new", "dashboard").want(t, 0, "mh_", "role none, producers -, without end")
	run(env, "token", "new", "ci").want(t, 1, "", "has a token ci; choose another name")
	table := run(nil, "token", "list", "--file", path)
	for _, row := range []string{
		`NAME +ROLE +PRODUCERS +CREATED +EXPIRES`, `ci +operator +orders,stock-\* +(now|\d+ s ago) +in 89 d`,
		`dashboard +none +- +(now|\d+ s ago) +never`,
	} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(table.out) {
			t.Errorf("the table lacks %s\n%s", row, table.out)
		}
	}
	listed := run(env, "token", "list", "--output=json")
	var document struct {
		Tokens []struct{ Name, Fingerprint string }
	}
	if err := json.Unmarshal([]byte(listed.out), &document); err != nil || len(document.Tokens) != 2 ||
		len(document.Tokens[0].Fingerprint) != 8 || strings.Contains(listed.out, "sha256") {
		t.Errorf("%v\n%s", err, listed.out)
	}

	run(env, "token", "revoke", "ci").want(t, 0, "token ci is revoked; coordinators that read "+path, "")
	run(env, "token", "revoke", "ci").want(t, 3, "", "there is no token of this name")
	run(env, "token", "list").want(t, 0, "dashboard", "")
	if content, err := os.ReadFile(path); err != nil || strings.Contains(string(content), "ci sha256") {
		t.Errorf("%v\n%s", err, content)
	}
}

func TestExpiredTokenIsListedAsExpired(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	line := "old sha256:" + strings.Repeat("ab", 32) + " expires=2001-01-31T00:00:00Z\n"
	must.Succeed(t, os.WriteFile(path, []byte(line), 0o600))
	run(nil, "token", "list", "--file="+path).want(t, 0, "old    none   -           -         expired ", "")
	run(nil, "token", "list", "--file="+path, "--output=json").want(t, 0, `"expired": true`, "")
}
