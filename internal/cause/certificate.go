package cause

import (
	"regexp"
	"strings"
	"time"
)

// expiredText is how crypto/x509 says that the time of a certificate is over. Errors of calls are known as text only.
var expiredText = regexp.MustCompile(
	`certificate has expired or is not yet valid: current time \S+ is after ([0-9TZ:+-]+)`)

// expiredAlert is the alert of TLS about an expired certificate that the other side was shown.
const expiredAlert = "tls: expired certificate"

// ofExpired is the cause of an error about an expired certificate, of the server or of this side, and usual for all
// other errors. The server's certificate is the cause server.
func ofExpired(text string, usual, server Cause) Cause {
	if found := expiredText.FindStringSubmatch(text); found != nil {
		at := found[1]
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			at = t.UTC().Format("2006-01-02 15:04 UTC")
		}
		return server.with("{date}", at, "{consequence}", usual.Why)
	}
	if strings.Contains(text, expiredAlert) {
		return ClientExpired.with("{consequence}", usual.Why)
	}
	return usual
}
