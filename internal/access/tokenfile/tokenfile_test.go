package tokenfile_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/test/must"
)

func write(t testing.TB, path, content string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
}

// newToken returns a token and its line in the file.
func newToken(name, fields string) (secret, line string) {
	secret = tokenfile.NewSecret()
	return secret, fmt.Sprintf("%s sha256:%x %s\n", name, sha256.Sum256([]byte(secret)), fields)
}

func open(t testing.TB, content string) (*tokenfile.File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, content)
	file, err := tokenfile.Open(path, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	return file, path
}

func TestTokenBecomesAnIdentity(t *testing.T) {
	t.Parallel()
	ci, ciLine := newToken("ci", "role=operator expires=2999-01-31T00:00:00Z")
	shop, shopLine := newToken("shop.orders", "created=2026-11-26T06:00:00+01:00 producers=orders,stock-*")
	file, _ := open(t, "# operators\n\n"+ciLine+"\t\r\n  "+shopLine)
	for secret, want := range map[string]access.Identity{
		ci: {
			Kind: access.Token, Name: "token:ci", Names: []string{"token:ci"}, Role: access.Operator,
			Expires: time.Date(2999, 1, 31, 0, 0, 0, 0, time.UTC),
		},
		shop: {
			Kind: access.Token, Name: "token:shop.orders", Names: []string{"token:shop.orders"},
			Producers: []string{"orders", "stock-*"},
		},
	} {
		got, err := file.Authenticate(t.Context(), secret)
		must.Succeed(t, err)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(access.Identity{})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestOnlyWholeKnownTokensAreAccepted(t *testing.T) {
	t.Parallel()
	secret, line := newToken("ci", "role=admin")
	file, _ := open(t, line)
	const damaged, unknown = "its checksum is wrong", "the token is unknown"
	last, typo := secret[:len(secret)-1], secret[:9]+"A"+secret[10:]
	if typo == secret {
		typo = secret[:9] + "B" + secret[10:]
	}
	for presented, want := range map[string]string{
		tokenfile.NewSecret():                    unknown,
		last:                                     damaged,
		secret + "A":                             damaged,
		secret + "=":                             damaged,
		secret + "\n":                            damaged,
		last + "\n":                              damaged,
		"mh_":                                    damaged,
		"mh_" + strings.Repeat("A", 48) + "\x00": damaged,
		typo:                                     damaged,
		secret[:9] + secret[10:]:                 damaged,
		"mh_" + strings.Repeat("A", 1<<20):       damaged,
	} {
		got, err := file.Authenticate(t.Context(), presented)
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, access.ErrNotMine) {
			t.Errorf("%.60q: got %v, want %s", presented, err, want)
		}
		if got.Role != access.NoRole || err != nil && len(presented) > 8 && strings.Contains(err.Error(), presented) {
			t.Errorf("%.60q: identity %v with %v", presented, got, err)
		}
	}
	for _, other := range []string{"", "eyJhbGciOiJub25lIn0.e30.", strings.ToUpper(secret), secret[3:], " " + secret} {
		if _, err := file.Authenticate(t.Context(), other); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("%.60q is of another source, got %v", other, err)
		}
	}
}

func TestTokenEndsAtItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().UTC().Add(time.Hour).Truncate(time.Second)
		secret, line := newToken("ci", "role=admin expires="+end.Format(time.RFC3339))
		file, _ := open(t, line)
		time.Sleep(time.Until(end) - time.Nanosecond) // in a bubble
		if _, err := file.Authenticate(t.Context(), secret); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		got, err := file.Authenticate(t.Context(), secret)
		if err == nil || !strings.Contains(err.Error(), "the token ci expired at 2000-01-01T01:00:00Z") || got.Role != 0 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestChangedFileIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		first, firstLine := newToken("first", "role=viewer")
		second, secondLine := newToken("second", "role=admin")
		write(t, path, firstLine)
		var log bytes.Buffer
		file, err := tokenfile.Open(path, slog.New(slog.NewTextHandler(&log, nil)))
		must.Succeed(t, err)
		accepts := func(when string, firstIs, secondIs bool) {
			t.Helper()
			time.Sleep(time.Second) // in a bubble
			for secret, want := range map[string]bool{first: firstIs, second: secondIs} {
				if _, err := file.Authenticate(t.Context(), secret); (err == nil) != want {
					t.Errorf("%s: got %v", when, err)
				}
			}
		}
		accepts("at first", true, false)
		write(t, path, firstLine+secondLine)
		accepts("with both", true, true)
		write(t, path, secondLine)
		accepts("after a revocation", false, true)
		write(t, path, strings.Replace(secondLine, "admin", "viewer", 1))
		accepts("with another role", false, true)
		for _, line := range []string{
			"added=[second] removed=[]", "added=[] removed=[first]", "added=[second] removed=[second]",
		} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log lacks %s:\n%s", line, &log)
			}
		}
		write(t, path, secondLine+"third "+tokenfile.NewSecret())
		accepts("with a bad line", false, true)
		if !strings.Contains(log.String(), "changed token file is unusable") || strings.Contains(log.String(), "mh_") {
			t.Errorf("the log is\n%s", &log)
		}
		write(t, path, "# none\n")
		accepts("with all revoked", false, false)
	})
}

func TestExposedFileIsWarnedOf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "")
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o640: "", 0o644: "every user of this machine may read the token file; set its mode to 0600",
	} {
		must.Succeed(t, os.Chmod(path, mode))
		var log bytes.Buffer
		if _, err := tokenfile.Open(path, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("mode %#o: the log is %q", mode, got)
		}
	}
}

func TestBadLinesAreNamedNotQuoted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	secret, line := newToken("ci", "")
	line = strings.TrimSpace(line)
	for content, want := range map[string]string{
		"\n# x\n" + secret:                      "line 3: a line is NAME sha256:HEX",
		"ci " + secret:                          "line 1: the second field is not sha256:",
		"ci sha256:abc":                         "line 1: the second field is not sha256:",
		strings.Replace(line, "sha256:", "", 1): "line 1: the second field is not sha256:",
		secret + " " + line:                     "line 1: the name begins with mh_",
		"-ci" + line[2:]:                        "line 1: the name of a token has",
		"c/i" + line[2:]:                        "line 1: the name of a token has",
		line + "\n" + line:                      "line 2: the name is that of line 1",
		line + "\nother" + line[2:]:             "line 2: the hash is that of line 1",
		line + " role=root":                     "line 1: the role is none of",
		line + " role=":                         "line 1: the role is none of",
		line + " expire=2027-01-31T00:00:00Z":   "line 1: a field is none of",
		line + " " + secret:                     "line 1: a field is none of",
		line + " expires=2027-01-31":            "line 1: a time is not of RFC 3339",
		line + " role=viewer role=admin":        "line 1: a field stands twice",
		line + " producers=orders,":             "line 1: a producer has",
		line + " producers=a[b]":                "line 1: a producer has",
	} {
		write(t, path, content)
		_, err := tokenfile.Open(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), path+": "+want) || strings.Contains(err.Error(), secret) ||
			strings.Contains(err.Error(), line[10:20]) {
			t.Errorf("%q: got %v", content, err)
		}
	}
	if _, err := tokenfile.Open(path+".missing", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("without a file: %v", err)
	}
}

func TestSecretsAreLongAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		secret := tokenfile.NewSecret()
		if len(secret) != 51 || !strings.HasPrefix(secret, "mh_") || seen[secret] {
			t.Fatalf("the token %s", secret)
		}
		seen[secret] = true
	}
}

// FuzzParse reads any text as a file of tokens. A line that is read is written and read as the same token.
func FuzzParse(f *testing.F) {
	_, line := newToken("ci",
		"created=2026-11-26T06:00:00Z expires=2027-01-31T00:00:00.5+01:00 role=admin producers=a,b-*")
	f.Add(line)
	f.Add("# x\n\r\n" + line + line)
	f.Add(strings.ToUpper(line))
	f.Add("ci sha256:" + strings.Repeat("0", 64) + " role=none expires=9999-12-31T23:59:59-01:00")
	f.Fuzz(func(t *testing.T, content string) {
		tokens, err := tokenfile.Parse(content)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error names no line, or has several: %q", err)
			}
			return
		}
		for _, token := range tokens {
			again, err := tokenfile.Parse(token.String())
			if err != nil || len(again) != 1 || again[0].String() != token.String() {
				t.Errorf("%q is read as %v, %v", token, again, err)
			}
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			var secret, content string
			for i := range n {
				var line string
				secret, line = newToken(fmt.Sprintf("t%d", i), "role=viewer producers=orders")
				content += line
			}
			file, _ := open(b, content)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := file.Authenticate(b.Context(), secret); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
