package doctor

import (
	"crypto/tls"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/msghandler/msghandler/internal/app/certfiles"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/expiry"
)

const areaCertificates = "certificates"

// handshakes returns what notes the handshakes with the servers behind a key.
func (e *Examination) handshakes(key string) func(server string, state tls.ConnectionState, err error) {
	if e.certificates == nil {
		return nil
	}
	return e.certificates.Servers(key, nil).Handshake
}

// noteCoordinator notes the certificate that the coordinator has shown.
func (e *Examination) noteCoordinator(with *peer.Peer) {
	if secured, is := with.AuthInfo.(credentials.TLSInfo); is {
		e.handshakes("--server")(e.Coordinator.Address, secured.State, nil)
	}
}

// examineCertificates reports certificates that have ended or end soon: those in the files of the settings, and those
// that servers have shown to the other parts of the examination.
func (e *Examination) examineCertificates(now time.Time) []Finding {
	r := report{area: areaCertificates}
	for _, file := range slices.Concat(certfiles.Own(&e.Settings), certfiles.Others(&e.Settings)) {
		e.certificates.Add(file.Certificates)
	}
	all := e.certificates.All(now)
	if len(all) == 0 {
		return nil
	}
	over, soon := expiry.Due(all, now)
	if over != "" {
		r.because(cause.CertificateExpired, over)
	}
	if soon != "" {
		r.warn(cause.CertificateEnds.Name, soon, cause.CertificateEnds.Why, cause.CertificateEnds.Remedy)
	}
	return r.orOK("the first ends on " + all[0].Ends.UTC().Format(time.DateOnly))
}
