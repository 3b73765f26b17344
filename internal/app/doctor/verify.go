package doctor

import (
	"context"
	"errors"
	"maps"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Verify examines how a producer keeps the contract of ProducerService. Beside the questions of Examine there are calls
// that leave traces in the producer's database, such as a final question about an id that cannot exist. committed are
// committed ids whose markers still exist. Each part has at least a finding OK.
func Verify(ctx context.Context, e Examination, name, address string, committed ...string) []Finding {
	return e.ofDefaults([]string{sectionCallbacks}, e.verify(ctx, name, address, committed))
}

func (e *Examination) verify(ctx context.Context, name, address string, committed []string) []Finding {
	r := report{area: "producer " + name}
	client := r.callbacks(e)
	if client == nil {
		return r.all
	}
	defer client.Close()
	found := e.examineProducer(ctx, client, name, address)
	if Worst(found) == Trouble {
		return found
	}
	to, _ := r.find(client, name, address)
	api, release, err := client.Open(to)
	if err != nil {
		r.unreachable(err)
		return r.all
	}
	defer release()
	i := interview{api: api, name: name, to: to, timeout: e.Settings.Confirm.Timeout}
	for _, part := range []func(context.Context, *report) string{
		i.batch, i.odd, i.known(committed), i.final, i.deletions, e.stranger(to),
	} {
		r := report{area: "producer " + name}
		if well := part(ctx, &r); well != "" || len(r.all) > 0 {
			found = append(found, r.orOK(well)...)
		}
	}
	return found
}

// stranger calls the producer without its credentials from the settings: a producer with credentials must refuse
// strangers. Without credentials in the settings there is no call.
func (e *Examination) stranger(to halfmsg.Target) func(context.Context, *report) string {
	return func(ctx context.Context, r *report) string {
		shown := &e.Settings.Callbacks.Certificates
		secure := e.Settings.Secure(to.Producer) || strings.HasPrefix(to.Address, httpsScheme)
		if e.Settings.TokenFile(to.Producer) == "" && (shown.Cert == "" || !secure) {
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
		client := r.callbacks(&without)
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
