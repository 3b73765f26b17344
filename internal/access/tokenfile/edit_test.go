package tokenfile_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/test/must"
)

func token(name string) tokenfile.Token {
	return tokenfile.Token{Name: name, Sum: sha256.Sum256([]byte(name))}
}

func content(t *testing.T, path string) string {
	t.Helper()
	read, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(read)
}

func TestEditsKeepOtherLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	a, b := token("a"), token("b")
	write(t, path, "# of the shop\r\n\n"+a.String()) // without an end of the line
	must.Succeed(t, tokenfile.Add(path, b))
	if got, want := content(t, path), "# of the shop\r\n\n"+a.String()+"\n"+b.String()+"\n"; got != want {
		t.Errorf("the file is %q", got)
	}
	if err := tokenfile.Add(path, a); err == nil || !strings.Contains(err.Error(), "has a token a;") {
		t.Errorf("a second a: %v", err)
	}
	must.Succeed(t, tokenfile.Remove(path, "a"))
	if got, want := content(t, path), "# of the shop\r\n\n"+b.String()+"\n"; got != want {
		t.Errorf("the file is %q", got)
	}
	for _, name := range []string{"a", "#", ""} {
		if err := tokenfile.Remove(path, name); !errors.Is(err, tokenfile.ErrNoToken) {
			t.Errorf("no token %q: %v", name, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}

func TestEditRefusesABrokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "broken\n")
	for _, err := range []error{tokenfile.Add(path, token("a")), tokenfile.Remove(path, "broken")} {
		if err == nil || !strings.Contains(err.Error(), path+": line 1") {
			t.Errorf("got %v", err)
		}
	}
	if got := content(t, path); got != "broken\n" {
		t.Errorf("the file is %q", got)
	}
	missing := path + ".missing"
	if err := tokenfile.Remove(missing, "a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("a removal has made a file")
	}
}

func TestEditKeepsModeAndLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "tokens"), filepath.Join(dir, "link")
	must.Succeed(t, tokenfile.Add(path, token("a")))
	mode := func(want os.FileMode) {
		t.Helper()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v instead of %v, %v", info.Mode(), want, err)
		}
	}
	mode(0o600)
	must.Succeed(t, errors.Join(os.Chmod(path, 0o640), os.Symlink(path, link), tokenfile.Add(link, token("b"))))
	mode(0o640)
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link names %q, %v", to, err)
	}
	if tokens, err := tokenfile.Read(path); err != nil || len(tokens) != 2 {
		t.Errorf("the file holds %v, %v", tokens, err)
	}
}

// adder names the file to which a child process adds tokens, and the child's name.
const adderFile, adderName = "MSGHANDLER_TEST_ADD_TO", "MSGHANDLER_TEST_ADDER"

const tokensOfAnAdder = 20

func TestMain(m *testing.M) {
	path := os.Getenv(adderFile)
	if path == "" {
		os.Exit(m.Run())
	}
	for i := range tokensOfAnAdder {
		if err := tokenfile.Add(path, token(fmt.Sprintf("%s.%d", os.Getenv(adderName), i))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// Processes add tokens to a file that none of them finds at first. No token is lost.
func TestConcurrentProcessesLoseNoToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	const processes = 4
	var running sync.WaitGroup
	for i := range processes {
		running.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), adderFile+"="+path, fmt.Sprintf("%s=p%d", adderName, i))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	running.Wait()
	tokens, err := tokenfile.Read(path)
	if err != nil || len(tokens) != processes*tokensOfAnAdder {
		t.Errorf("%d tokens instead of %d, %v", len(tokens), processes*tokensOfAnAdder, err)
	}
}
