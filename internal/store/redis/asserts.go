package redis

import (
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// leadsTo has for each event the states that a stored event may leave a message in: those of the table, and those of a
// retry that came while the lease holder worked on the message.
var leadsTo = func() (states [][]bool) {
	for _, event := range halfmsg.Events() {
		of := make([]bool, len(halfmsg.States()))
		for _, from := range halfmsg.States() {
			to, legal := halfmsg.Next(from, event)
			if !legal {
				continue
			}
			of[to] = true
			if after, legal := halfmsg.Next(to, halfmsg.EventRetry); legal && hurried[event] {
				of[after] = true
			}
		}
		states = append(states, of)
	}
	return states
}()

// assertStored states that the answer to an event is a state of the table.
func assertStored(event halfmsg.Event, name halfmsg.Name, r halfmsg.Result) {
	assert.Always(r.Err != nil || leadsTo[event][r.State], "an event is stored as a state that the table has for it",
		name.Producer, name.ID, event.String(), r.State.String())
}

// assertMoved is assertStored for many messages, and returns their results.
func assertMoved(event halfmsg.Event, names []halfmsg.Name, results []halfmsg.Result) []halfmsg.Result {
	for i := range results {
		assertStored(event, names[i], results[i])
	}
	return results
}

// assertCreated states that a message that is stored has a state, and returns the results.
func assertCreated(messages []halfmsg.Message, results []halfmsg.Result) []halfmsg.Result {
	for i := range results {
		name := &messages[i].Name
		assert.Always(results[i].Err != nil || results[i].State != halfmsg.None, "a stored half message has a state",
			name.Producer, name.ID)
	}
	return results
}

// assertClaims states that claims have what their holder needs, and returns them.
func assertClaims(claims []halfmsg.Claim, err error) ([]halfmsg.Claim, error) {
	for i := range claims {
		assertClaim(&claims[i])
	}
	return claims, err
}

func assertClaim(c *halfmsg.Claim) {
	assert.Always(c.Token != "" && c.ID != "", "a claim has a token and a name", c.Producer, c.ID)
	assert.Always(c.State != halfmsg.Sendable || !c.SendableAt.IsZero(), "a SENDABLE message has a stored verdict",
		c.Producer, c.ID)
}

// assertSubmitted states that a Submit claims nothing but what it was about, in the state that it leads to, and returns
// the results. A trusted Submit may leave a message without a token.
func assertSubmitted(event halfmsg.Event, names []halfmsg.Name, results []halfmsg.Submitted) []halfmsg.Submitted {
	to, _ := halfmsg.Next(halfmsg.Pending, event)
	for i := range results {
		c := results[i].Claim
		if c == nil {
			continue
		}
		assert.Always(c.Name == names[i] && c.State == to, "a Submit claims its own message in the state that it leads to",
			names[i].Producer, names[i].ID, c.State.String())
		if c.Token != "" {
			assertClaim(c)
		}
	}
	return results
}
