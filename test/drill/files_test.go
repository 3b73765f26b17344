package drill

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// files are those below /etc/msghandler: the configuration, the certificate and key for calls to producers, and the URL
// of the broker events.
type files struct{ config, cert, key, events string }

// writeFiles fills /etc/msghandler.
func (w *world) writeFiles() {
	dir := w.t.TempDir()
	w.files = files{config: filepath.Join(dir, "msghandler.yaml"), events: filepath.Join(dir, "events-url")}
	w.must(os.WriteFile(w.files.config, []byte("limits: {unfinished: 100000}\n"), 0o600))
	w.must(os.WriteFile(w.files.events, []byte(w.nats.URL), 0o600))
	w.files.cert, w.files.key = w.authority.Issue("coordinator")
}

// configure adds a line to the /etc/default/msghandler of each coordinator, or writes the file with a URL.
func (w *world) configure(args []string) error {
	switch strings.Join(args[1:], " ") {
	case ">> /etc/default/msghandler":
		for _, c := range w.coordinators {
			c.environment = append(c.environment, args[0])
		}
		return nil
	case "> /etc/msghandler/events-url":
		return os.WriteFile(w.files.events, []byte(args[0]+"\n"), 0o600)
	}
	return errors.New("the drill does not know this file")
}

// edit runs sed on the configuration file.
func (w *world) edit(args []string) error {
	args[len(args)-1] = w.files.config
	return w.output(exec.Command("sed", args...))
}

// installFiles puts a certificate and its key into /etc/msghandler.
func (w *world) installFiles(args []string) error { return w.install(args[2], args[3]) }

func (w *world) install(cert, key string) error {
	for from, to := range map[string]string{cert: w.files.cert, key: w.files.key} {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
