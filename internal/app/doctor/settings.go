package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/connlimit"
	"github.com/msghandler/msghandler/internal/ground/files"
)

const areaSettings = "configuration"

// shortRetention is a time within which clients may still repeat a call whose answer they never saw.
const shortRetention = time.Minute

// examineSettings looks for settings that are valid and rarely intended. An invalid setting already fails the load.
func examineSettings(_ context.Context, e Examination) []Finding {
	r := report{area: areaSettings}
	r.callbackSettings(e.Settings.Callbacks)
	if plain := e.Settings.TokensInPlain(); len(plain) > 0 {
		r.warn("callbacks-token-plain", "without encryption tokens are shown that "+strings.Join(plain, ", ")+" names",
			"who listens on the way can learn them, and roll back transactions that are running",
			"set callbacks.tls, unless the network itself is private or encrypted")
	}
	if e.Settings.SecuresURLsOnly() {
		r.warn("callbacks-tls-unset", "callbacks.tls_ca or callbacks.tls_cert is set, and callbacks.tls is not",
			"only targets of https:// are called with TLS, and all others without encryption",
			"set callbacks.tls, or producers.NAME.tls for a single producer")
	}
	if e.Settings.Access.Anonymous {
		r.warn("access-anonymous", "access.anonymous is set",
			"callers that show no certificate and no token may do everything",
			"give callers certificates or tokens, and remove access.anonymous")
	}
	if exposed := e.Settings.Exposed(); len(exposed) > 0 && !e.Settings.Access.Anonymous {
		r.trouble("access-exposed",
			"other machines reach "+strings.Join(exposed, " and ")+", and nothing tells who calls there",
			"the coordinator does not start", "set access.token_file, access.oidc_issuer, for grpc.addr also "+
				"grpc.tls_client_ca, or for http.addr also http.user_header; or listen on 127.0.0.1")
	}
	if !e.Settings.NamesCallers() {
		r.warn("callers-unnamed", "no key says who may call as a producer", "every call of a producer is refused",
			"set grpc.callers or producers.NAME.callers")
	}
	if e.Settings.Submit.Trust {
		r.warn("submit-trusted", "submit.trust is true", "a Submit is taken as the verdict, so a producer that submits "+
			"before it commits publishes what never happened", "trust single producers instead: producers.NAME.trust")
	}
	if e.Settings.Redis.AllowUnsafe {
		r.warn("redis-unsafe-allowed", "redis.allow_unsafe is true",
			"the coordinator starts on a Redis that throws messages away", "fix the findings about Redis, and set it back")
	}
	if kept := e.Settings.Done.Retention; kept < shortRetention {
		r.warn("retention-short", fmt.Sprintf("done.retention is %v", kept),
			"a call that is repeated later than that no longer learns that its message is done, and sends it anew",
			"set it to longer than any client repeats a call; the default is 10m")
	}
	r.descriptors(e.Descriptors)
	r.exposedFiles(e.Settings.PrivateFiles)
	return r.orOK("nothing that endangers messages")
}

// exposedFiles looks for files with secrets that others may read or write.
func (r *report) exposedFiles(private []config.PrivateFile) {
	for _, file := range private {
		if may := files.Exposed(file.Path); may != "" {
			r.warn("secrets-exposed", "every user of this machine may "+may+" "+file.Path+" ("+file.What()+")",
				"they may learn the secret, or replace it", "chmod o-rw "+file.Path)
		}
	}
}

// descriptors looks at how many files a process started here may open: a coordinator started in another way may have
// more.
func (r *report) descriptors(limit int) {
	share := connlimit.Divide(limit)
	if !share.Low {
		return
	}
	r.warn("descriptors-low", fmt.Sprintf("a process started here may open %d files", limit),
		fmt.Sprintf("a coordinator takes %d connections at grpc.addr and %d at http.addr, and closes more at once",
			share.API, share.Console),
		"raise the limit of open files where the coordinator is started: ulimit -n, or LimitNOFILE of systemd")
}

// callbackSettings looks at who may be called. None may be called where all producers attend, as the SDK does by
// default; the coordinator names the producers that it refuses.
func (r *report) callbackSettings(settings config.Callbacks) {
	if settings.PublicOnly() {
		r.warn("callbacks-networks-unset", "callbacks.networks is empty",
			"producers at private addresses are not called, and their messages wait",
			"name the networks of your producers, such as 10.0.0.0/8")
	}
	for _, glob := range settings.Allow {
		if strings.HasPrefix(glob, "*:") {
			r.warn("callbacks-open", "callbacks.allow holds "+glob, "anyone who may send a message decides which host is called",
				"name the hosts of your producers, such as *.orders.svc:9000")
		}
	}
}
