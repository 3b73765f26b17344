package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/app/callbacks"
	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

const areaProducers = "producers"

// unknowable makes an id that no producer can know.
func unknowable() string { return "msghandler-doctor-" + rand.Text() }

// examineProducers asks every producer with a known target, and producers of pending messages, about an id that the
// producer cannot know.
func examineProducers(ctx context.Context, e Examination) []Finding {
	r := report{area: areaProducers}
	client := r.callbacks(&e)
	if client == nil {
		return r.all
	}
	defer client.Close()
	known := e.knownTargets()
	found := e.askProducers(ctx, client, known)
	pending, all := e.pendingTargets(ctx, client, known)
	if len(known)+len(pending) == 0 {
		return r.orOK("no callback target is known; name one with --producer NAME=HOST:PORT or NAME=URL")
	}
	r.unasked(all)
	return slices.Concat(found, e.askProducers(ctx, client, pending), r.all)
}

// callbacks returns the client with which a coordinator of these settings calls producers. On failure the result is
// nil, and there is a finding.
func (r *report) callbacks(e *Examination) *callback.Client {
	const why = "the coordinator does not start"
	settings := e.open(e.Settings)
	config, _, err := callbacks.Config(&settings, slog.New(slog.DiscardHandler))
	if err != nil {
		r.trouble("callbacks-credentials", err.Error(), why, "correct that file, or name another")
		return nil
	}
	client, err := callback.New(config)
	if err != nil {
		r.trouble("producer-forbidden", err.Error(), why, "correct the target, or allow it in callbacks.allow")
		return nil
	}
	return client
}

func (e *Examination) examineProducer(ctx context.Context, client *callback.Client, name, address string) []Finding {
	r := report{area: "producer " + name}
	to, reached := r.find(client, name, address)
	if !reached {
		return r.all
	}
	id, asked := unknowable(), time.Now()
	verdicts, err := client.Confirm(ctx, to, []string{id}, false)
	if err != nil {
		r.unreachable(err)
		return r.all
	}
	r.took(time.Since(asked), e.Settings.Confirm.Timeout)
	r.verdict(verdicts[id], id)
	if err := client.DeleteBusiness(ctx, to, []string{id}); err != nil {
		r.keepsMarkers(err)
	}
	return r.orOK(fmt.Sprintf("answers at %s, and UNKNOWN of an id that cannot exist", to.Address))
}

// find looks where a producer is called back; nothing is dialled yet.
func (r *report) find(client *callback.Client, name, address string) (to halfmsg.Target, found bool) {
	resolved, err := client.Resolve(name, address)
	const why = "its half messages are refused"
	if err != nil && !r.forbidden(err, why) {
		r.trouble("producer-forbidden", err.Error(), why,
			"write host:port or a plain URL, and allow it in callbacks.allow")
	}
	return halfmsg.Target{Producer: name, Address: resolved}, err == nil
}

// anotherName is the SDK's answer to a call for another producer.
const anotherName = "this is the producer "

// The texts of gRPC's errors about connections: only the text tells these errors apart.
const (
	outsideNetworks = "outside callbacks.networks"
	noHTTP2         = "error reading server preface"
	noGRPC          = "unexpected HTTP status code"
	noTrust         = "authentication handshake failed"
	// No answer came before the call ended, or before gRPC closed the connection.
	noConnection = "waiting for connections to become ready"
	gaveUp       = "use of closed network connection"
)

// addNetwork is the remedy where an address lies outside callbacks.networks.
const addNetwork = "add that network to callbacks.networks, beside those of all other producers (empty, it holds " +
	"the public addresses only); or have callbacks.allow and the target name the address itself"

// neverCalled is a part of the errors about reserved addresses and the coordinator's own.
const neverCalled = "never call"

// forbidden reports a target at an address that must not be called.
func (r *report) forbidden(err error, why string) (reported bool) {
	switch text := err.Error(); {
	case strings.Contains(text, outsideNetworks):
		r.trouble("producer-forbidden", text, why, addNetwork)
	case strings.Contains(text, neverCalled):
		r.trouble("producer-forbidden", text, why, "give the producer an address of its own; no setting allows that address")
	default:
		return false
	}
	return true
}

// unreachable reports why a producer gave no answer, as far as the cause decides the remedy.
func (r *report) unreachable(err error) {
	const why = "its messages wait until it answers"
	var away *callback.CallError
	errors.As(err, &away)
	saying := func(words string) bool { return strings.Contains(err.Error(), words) }
	if r.unusableURL(away, err) || r.forbidden(err, why) {
		return
	}
	switch {
	case away != nil && away.Refused() && !saying(noGRPC):
		r.trouble("producer-refuses", err.Error(), why,
			"set callbacks.token_file, or producers.NAME.token_file, to a token that its "+
				"Coordinators accept; or have callbacks.tls_cert and its server's TLS show it a certificate with one of the "+
				"names there")
	case away != nil && away.Code() == codes.FailedPrecondition && saying(anotherName):
		r.trouble("producer-another", err.Error(), why,
			"name the producer as it is called there, or correct its callback target: "+
				"a producer with another name listens at this one")
	case away != nil && away.Code() == codes.Unimplemented:
		r.trouble("producer-no-service", err.Error(), why,
			"name the address at which it serves msghandler.v1.ProducerService, or register that service")
	case saying(noConnection), saying(gaveUp):
		r.trouble("producer-away", err.Error(), why,
			"something swallows what is sent there: let the coordinator through to it, or look "+
				"whether what listens there hangs")
	case saying(noTrust):
		r.trouble("producer-certificate", err.Error(), why,
			"give it a certificate for the host of its callback target, of an authority in "+
				"callbacks.tls_ca; where it asks for one, let it take that of callbacks.tls_cert; where it serves without TLS, "+
				"set producers.NAME.tls to false, or write http:// in its URL")
	case saying(noHTTP2), saying(noGRPC):
		r.trouble("producer-no-service", err.Error(), why,
			"name the address at which it serves gRPC: what listens there speaks something else, or asks for TLS; for that "+
				"set producers.NAME.tls")
	case away != nil && away.Unresolved():
		r.trouble("producer-away", err.Error(), why,
			"look whether the name in its callback target resolves from here; correct it, or the DNS")
	case away == nil || away.Code() == codes.Unavailable:
		r.trouble("producer-away", err.Error(), why, "start it, or correct its callback target")
	case away.Code() == codes.DeadlineExceeded:
		r.trouble("producer-mute", err.Error(), why, "find what holds up its Confirm, or raise confirm.timeout")
	default:
		r.trouble("producer-fails", err.Error(), why,
			"look into its log: an id that it does not know is UNKNOWN, not an error")
	}
}

// took judges the duration of an answer. A producer that needs half of the timeout when idle exceeds the timeout under
// load.
func (r *report) took(took, timeout time.Duration) {
	if took > timeout/2 {
		r.warn("producer-slow",
			fmt.Sprintf("took %v to answer; confirm.timeout is %v", took.Round(time.Millisecond), timeout),
			"under load its answers will come too late, and its messages wait", "speed up its Confirm, or raise confirm.timeout")
	}
}

// verdict judges the answer about an id that cannot exist, to a question that is not final.
func (r *report) verdict(verdict halfmsg.Verdict, id string) {
	switch verdict {
	case halfmsg.VerdictCommitted:
		r.trouble("producer-commits-unknown", "says COMMITTED of an id that cannot exist ("+id+")",
			"it would have messages published whose business never happened", "answer COMMITTED only when the marker is there")
	case halfmsg.VerdictRolledBack:
		r.trouble("producer-hasty", "says ROLLED_BACK of an id that it does not know, though the question was not final",
			"a business that is still running would lose its message",
			"answer UNKNOWN, and ROLLED_BACK only when it can never commit")
	case halfmsg.VerdictUnavailable:
		r.trouble("producer-fails", "says UNAVAILABLE: it cannot look up its transactions",
			"they wait, and are asked about again",
			"look at the producer's log, and at the database that holds its business data")
	}
}

func (r *report) keepsMarkers(err error) {
	r.warn("producer-keeps-markers", err.Error(), "its markers are never deleted, and pile up",
		"DeleteBusiness must succeed for an id that is gone already")
}
