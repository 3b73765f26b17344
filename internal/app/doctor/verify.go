package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Verify examines how a producer keeps the contract of ProducerService. Beside the questions of Examine there are calls
// that leave traces in the producer's database, such as a final question about an id that cannot exist. committed are
// committed ids whose markers still exist. Each part has at least a finding OK.
func Verify(ctx context.Context, e Examination, name, address string, committed ...string) []Finding {
	found := e.verify(ctx, name, address, committed)
	if attends(halfmsg.Target{Address: address}) {
		return found // the callbacks of the configuration are not used
	}
	return e.ofDefaults([]string{sectionCallbacks}, found)
}

func (e *Examination) verify(ctx context.Context, name, address string, committed []string) []Finding {
	r := report{area: areaOfProducer + name}
	streams := e.newStreams()
	defer streams.Close()
	client := r.callbacks(e, streams)
	if client == nil {
		return of(checkReach, 0, r.all)
	}
	defer client.Close()
	var found []Finding
	if !e.DatabaseAway {
		began := time.Now()
		found = e.examineProducer(ctx, client, name, address)
		of(checkReach, time.Since(began), found)
	}
	switch refused := streams.refusal(); {
	case ctx.Err() != nil && (refused != nil || !Unreached(found)):
		return r.unfinished(nil, checkReach)
	case refused != nil:
		return of(checkReach, 0, unasks(e.Coordinator, refused))
	}
	if Worst(found) == Trouble {
		return found
	}
	to, allowed := r.find(client, name, address)
	if !allowed {
		return of(checkReach, 0, r.all)
	}
	api, release, err := client.Open(to)
	if err != nil {
		r.unreachable(err)
		return of(checkReach, 0, r.all)
	}
	defer release()
	i := &interview{
		api: api, name: name, to: to, timeout: e.Settings.Confirm.Timeout, agreed: map[string]pb.Verdict{}, streams: streams,
	}
	for _, c := range e.checks(i, client, committed) {
		r, began := report{area: areaOfProducer + name}, time.Now()
		well := c.ask(ctx, &r)
		if ctx.Err() != nil {
			return r.unfinished(found, c.name)
		}
		if refused := streams.refusal(); refused != nil {
			return append(found, of(c.name, time.Since(began), unasks(e.Coordinator, refused))...)
		}
		if well != "" || len(r.all) > 0 {
			found = append(found, of(c.name, time.Since(began), r.orOK(well))...)
		}
	}
	return found
}

// unasks are the findings about a coordinator that does not ask a producer that attends.
func unasks(at Coordinator, err error) []Finding {
	const why = "nothing is known of the producer: only coordinators have the streams of producers that attend"
	r := report{area: areaCoordinator}
	if !refuses(err) {
		r.away(at, err)
		return r.all
	}
	r.trouble("coordinator-refuses", fmt.Sprintf("at %s refuses to ask the producer: %s", at.Address,
		status.Convert(err).Message()), why, "show it the token of an operator with --token-file, or a certificate that "+
		"access.operators matches with --tls-cert")
	return r.all
}

// unfinished adds to findings that the time was over during a check. What the check has found by then is left out: a
// call that the end of the time has cut short says nothing of the producer.
func (r *report) unfinished(found []Finding, check string) []Finding {
	r.all = nil
	r.trouble("verify-unfinished", "the time of the examination was over during the check "+check,
		"nothing is known of this check and of the checks after it",
		"give more time with --timeout; a producer that answers slowly needs more than a minute")
	return append(found, of(check, 0, r.all)...)
}

// stranger calls the producer without its credentials from the settings: a producer with credentials must refuse
// strangers. Without credentials in the settings there is no call.
func (e *Examination) stranger(to halfmsg.Target) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		shown := &e.Settings.Callbacks.Certificates
		secure := e.Settings.Secure(to.Producer) || strings.HasPrefix(to.Address, "https://")
		if attends(to) || e.Settings.TokenFile(to.Producer) == "" && (shown.Cert == "" || !secure) {
			return ""
		}
		without := *e
		without.Settings.Callbacks.TokenFile = ""
		without.Settings.Callbacks.Certificates = config.Certificates{CA: shown.CA}
		without.Settings.Producers = maps.Clone(e.Settings.Producers)
		for name, p := range without.Settings.Producers {
			p.TokenFile = nil
			without.Settings.Producers[name] = p
		}
		client := r.callbacks(&without, without.newStreams())
		if client == nil {
			return ""
		}
		defer client.Close()
		_, err := client.Confirm(ctx, to, []string{unknowable()}, false)
		var unanswered *callback.CallError
		switch {
		case errors.As(err, &unanswered) && unanswered.Code() == codes.DeadlineExceeded:
			r.warn("producer-guard-unknown", "gives no answer to a caller without credentials: "+err.Error(),
				"no answer is no refusal: whether the producer refuses strangers is not known",
				"find what holds up its Confirm, then verify the producer again")
			return ""
		case err == nil:
			r.warn(
				"producer-unguarded",
				"answers a caller that shows neither a token nor a certificate",
				"anyone who reaches the producer can have its transactions rolled back",
				"set Coordinators in its producer.Config, to what "+
					"callbacks.token_file or callbacks.tls_cert holds",
			)
		}
		return "refuses a caller without credentials"
	}
}
