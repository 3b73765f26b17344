package docs

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
)

// etc is where the pages have the files of a coordinator.
const etc = "/etc/msghandler/"

var secretPattern = regexp.MustCompile(`(\w+): (` + etc + `[\w./-]+)`)

// checkConfig loads a block as the configuration of a coordinator. The files of /etc/msghandler/ exist for the block.
func checkConfig(t *testing.T, b *block) []problem {
	t.Helper()
	dir := t.TempDir()
	for _, found := range secretPattern.FindAllStringSubmatch(b.text(), -1) {
		write(t, filepath.Join(dir, strings.TrimPrefix(found[2], etc)), secretFor(found[1], found[2]))
	}
	file := filepath.Join(dir, "page.yaml")
	write(t, file, strings.ReplaceAll(b.text(), etc, dir+"/"))
	_, err := config.Load(config.Sources{File: file})
	if err == nil {
		return nil
	}
	var all *config.Error
	if !errors.As(err, &all) {
		return []problem{b.problem(lineOf(err), err.Error())}
	}
	var problems []problem
	for _, p := range all.Problems {
		line, _ := strconv.Atoi(strings.TrimPrefix(p.Source, file+":"))
		problems = append(problems, b.problem(line, strings.ReplaceAll(p.Key+" "+p.What, dir+"/", etc)))
	}
	return problems
}

// secretFor is the content of a file that a block names under a key.
func secretFor(key, path string) string {
	switch {
	case !strings.HasSuffix(key, "url_file"):
		return strings.Repeat("ab", 32)
	case strings.Contains(path, "redis"):
		return "redis://127.0.0.1:6379/0"
	}
	return "amqp://guest:guest@127.0.0.1:5672/"
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// knownVariable returns the mistake in a variable MSGHANDLER_..., or nothing.
func knownVariable(name, value string) string {
	_, err := config.Load(config.Sources{Env: []string{name + "=" + value}})
	var all *config.Error
	if !errors.As(err, &all) {
		return ""
	}
	for _, p := range all.Problems {
		if p.Key == name && p.Source == "environment" && (value == "" || !strings.Contains(p.What, "cannot be read")) {
			return name + " " + p.What
		}
	}
	return ""
}
