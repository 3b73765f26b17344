package cause

import (
	"regexp"
	"slices"
	"strings"
)

// call is a failed call to a producer, read from its error. Messages and other coordinators know the error as text
// only, whose form callback.CallError decides.
type call struct {
	// text is the whole error, target where the call went, code gRPC's code, empty in another error, and said the rest.
	text, target, code, said string
}

var callError = regexp.MustCompile(`(?s)^[A-Za-z]+ of producer \S+ at (\S+): ([A-Z][A-Za-z]+): (.*)$`)

func readCall(text string) call {
	parts := callError.FindStringSubmatch(text)
	if parts == nil {
		return call{text: text, said: text}
	}
	return call{text: text, target: parts[1], code: parts[2], said: parts[3]}
}

func (c *call) says(words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(c.text, w) })
}

// isHTTP says whether the producer is called by HTTP.
func (c *call) isHTTP() bool {
	return strings.HasPrefix(c.target, "http://") || strings.HasPrefix(c.target, "https://")
}

// Words of the SDK, of package callback, of gRPC and of net/http: only the text tells these errors apart.
const (
	anotherName     = "this is the producer "
	outsideNetworks = "outside callbacks.networks"
	neverCalled     = "never call"
	noHTTP2         = "error reading server preface"
	noGRPC          = "unexpected HTTP status code"
	noTrust         = "authentication handshake failed"
	noHTTP          = "does not speak HTTP/1.1"
	plainToTLS      = "HTTP request to an HTTPS server"
	noContract      = "not in the contract's form"
	noJSON          = "answer with 200 and JSON"
	unresolved      = "the name does not resolve here"
	unattended      = "no one attends as producer"
	streamsEnded    = "ended before an answer came"
	// No answer came before the call ended, or before gRPC closed the connection.
	noConnection = "waiting for connections to become ready"
	gaveUp       = "use of closed network connection"
)

// brokenWords are the words of calls by gRPC that failed on the way to the producer.
var brokenWords = []string{
	"transport:", "error reading from server", "closing transport", "write tcp", "read tcp",
}

// brokenOff says whether a call that failed with Unavailable failed on the way to the producer. An answer by HTTP may
// quote such words about the producer's own database.
func (c *call) brokenOff() bool {
	if c.isHTTP() {
		return !strings.HasPrefix(c.said, "HTTP status ")
	}
	return c.says(brokenWords...)
}

// bareStatus is an answer that a gateway gives for a service: a producer gives a reason with it.
var bareStatus = regexp.MustCompile(`^HTTP status 50[234] [A-Za-z ]+$`)

// OfTarget is the cause of a callback target that cannot be used.
func OfTarget(failure string) Cause {
	c, is := readCall(failure), ProducerForbidden
	switch {
	case c.says(outsideNetworks):
		is = ProducerOutside
	case c.says(neverCalled):
		is = ProducerNeverCalled
	}
	is.Why = ProducerForbidden.Why
	return is
}

// OfCall is the cause behind a failed call to a producer.
func OfCall(failure string) Cause {
	c := readCall(failure)
	if c.isHTTP() {
		switch {
		case c.says(noContract, noJSON):
			return ProducerNoVerdict
		case c.code == "Unimplemented", c.says(noHTTP):
			return ProducerNoURL
		case c.says(plainToTLS):
			return ProducerNeedsTLS
		}
	}
	switch {
	case c.says(outsideNetworks):
		return ProducerOutside
	case c.says(neverCalled):
		return ProducerNeverCalled
	case (c.code == "Unauthenticated" || c.code == "PermissionDenied") && !c.says(noGRPC):
		return ProducerRefuses
	case c.code == "FailedPrecondition" && c.says(anotherName):
		return ProducerAnother
	case c.code == "Unimplemented":
		return ProducerNoService
	case c.says(noConnection, gaveUp):
		return ProducerSwallowed
	case c.says(noTrust):
		return ofExpired(c.text, ProducerCertificate, ProducerExpired).About(Part{Key: "callbacks.tls_cert"})
	case c.says(noHTTP2, noGRPC):
		return ProducerNoGRPC
	case c.says(unresolved):
		return ProducerUnresolved
	case c.says(unattended, streamsEnded):
		return ProducerUnattended
	case c.code == "", c.code == "Unavailable" && c.brokenOff():
		return ProducerAway
	case c.code == "Unavailable" && bareStatus.MatchString(c.said):
		return ProducerGateway
	case c.code == "Unavailable":
		return ProducerUnable
	case c.code == "DeadlineExceeded":
		return ProducerMute
	}
	return ProducerFails
}
