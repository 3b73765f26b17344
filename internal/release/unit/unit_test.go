package unit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnitOfPackages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "systemd", "msghandler.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := Packaged(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"User=msghandler", "Group=msghandler", "Restart=always", "WantedBy=multi-user.target", "ProtectSystem=strict",
		"ExecStart=/usr/bin/msghandler serve --config /etc/msghandler/msghandler.yaml",
		"LoadCredential=redis-url:/etc/msghandler/secrets/redis-url",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for _, word := range []string{"DynamicUser", "/usr/local", "groupadd", "install -m"} {
		if strings.Contains(unit, word) {
			t.Errorf("the unit has %s, which is for an installation by hand", word)
		}
	}
	if _, err := Packaged(strings.ReplaceAll(string(text), "DynamicUser=yes\n", "")); err == nil {
		t.Error("a unit without the replaced line is taken")
	}
}
