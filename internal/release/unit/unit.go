// Package unit makes the systemd unit of the packages of the unit that people install by hand.
package unit

import (
	"fmt"
	"strings"
)

// Packaged is deploy/systemd/msghandler.service for a package, which brings the account and has the program elsewhere.
func Packaged(text string) (string, error) {
	_, settings, found := strings.Cut(text, "\n[Unit]\n")
	if !found {
		return "", fmt.Errorf("the unit has no [Unit] after its first lines")
	}
	const byHand = "\n# For other machines: "
	settings, after, found := strings.Cut(settings, byHand)
	_, install, installed := strings.Cut(after, "\n[Install]\n")
	if !found || !installed {
		return "", fmt.Errorf("the unit has no %q before [Install]", byHand)
	}
	const head = "# Of the package msghandler. To change settings: systemctl edit msghandler\n[Unit]\n"
	unit := head + settings + "\n[Install]\n" + install
	for _, change := range []struct{ old, new string }{
		{"/usr/local/bin/", "/usr/bin/"},
		{"DynamicUser=yes\n", "User=msghandler\nGroup=msghandler\n"},
	} {
		if n := strings.Count(unit, change.old); n != 1 {
			return "", fmt.Errorf("the unit has %q %d times, and a package changes it once", change.old, n)
		}
		unit = strings.Replace(unit, change.old, change.new, 1)
	}
	return unit, nil
}
