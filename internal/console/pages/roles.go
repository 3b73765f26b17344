package pages

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/msghandler/msghandler/internal/access"
)

// roleFor is the role that an action needs. An unknown action needs the highest.
func roleFor(action string) access.Role {
	if action == actRetry || action == actReplay {
		return access.Operator
	}
	return access.Admin
}

// verbs name the actions on buttons, and gerunds in a refusal.
var verbs = map[string]string{actRetry: "Retry", actDiscard: "Discard", actReplay: "Replay"}

var gerunds = map[string]string{actRetry: "retrying", actDiscard: "discarding", actReplay: "replaying"}

// canChange says whether the caller gets the button for an action.
func (p *Pages) canChange(r *http.Request, action string) bool {
	return !p.config.ReadOnly && access.From(r.Context()).Role >= roleFor(action)
}

// mayChange is the answer to a caller who may not change messages or letters.
func (p *Pages) mayChange(r *http.Request, action, nouns string) (refusal answer, refused bool) {
	if p.config.ReadOnly {
		return trouble(http.StatusForbidden, "This console is read-only",
			"http.read_only is set. Use the command line where you are allowed to: "+
				"msghandler retry, discard and replay for messages, msghandler dlq for dead letters."), true
	}
	return p.needs(r, roleFor(action), gerunds[action]+" "+nouns)
}

// needs is the answer to a caller whose role is too low. Every refusal of the pages is made here.
func (p *Pages) needs(r *http.Request, role access.Role, what string) (refusal answer, refused bool) {
	caller := access.From(r.Context())
	if caller.Role >= role {
		return answer{}, false
	}
	why := fmt.Sprintf("%s needs the role %s", what, role)
	p.config.Refused(r, why)
	return trouble(http.StatusForbidden, "Your role does not allow this", fmt.Sprintf("%s has the role %s; %s. "+
		"access.viewers, access.readers, access.operators and access.admins say who has which role.",
		cmp.Or(caller.Name, "An anonymous visitor"), caller.Role, why)), true
}

// hidesBodies says why the caller sees no bodies and headers; empty: the caller sees them.
func (p *Pages) hidesBodies(r *http.Request) string {
	switch {
	case p.config.HideBodies:
		return "This console shows no headers and bodies: http.bodies is false."
	case access.From(r.Context()).Role < access.Reader:
		return "Headers and bodies need the role reader."
	}
	return ""
}

// signed is the text that the token of a form signs: the form is of its reader alone.
func signed(r *http.Request, hidden string) string {
	return access.From(r.Context()).Name + "\n" + hidden
}
