package defects

const (
	lua         = "internal/store/redis/lua/"
	submits     = "internal/server/submit/"
	confirmloop = "internal/confirmloop/"
	calls       = "internal/callback/calls.go"
	publisher   = "broker/rabbitmq/"
	inboxes     = "consumer/inbox/sql/"
)

// ofCoordinators are mistakes of coordinators with RabbitMQ, and of the inbox.
var ofCoordinators = []Defect{
	{
		Name:  "returns_ignored",
		Edits: []Edit{{publisher + "confirmchannel.go", "case u.returned != nil:", "case false:"}},
	},
	{
		Name: "return_logged_and_done",
		Edits: []Edit{{
			publisher + "confirmchannel.go", "return publish.Refused.Because(u.returned)",
			"println(u.returned.Error())\n\t\treturn publish.Result{Outcome: publish.Acked}",
		}},
	},
	{
		Name: "nats_silence_is_done",
		Edits: []Edit{{
			"broker/nats/natsconn/answers.go", `return Unknown, fmt.Errorf("no answer of the stream: %w", err)`,
			"println(fmt.Sprint(err))\n\t\treturn Stored, nil",
		}},
	},
	{
		Name: "kafka_silence_is_done",
		Edits: []Edit{{
			"broker/kafka/kafkaconn/answer.go", "now.doubtful != before.doubtful:\n\t\tfate = Unknown",
			"now.doubtful != before.doubtful:\n\t\tfate = Stored",
		}},
	},
	{
		Name: "done_without_ack",
		Edits: []Edit{{
			publisher + "publishcall.go", "u *unconfirmed, isolated bool) publish.Result {\n",
			"u *unconfirmed, isolated bool) publish.Result {\n\treturn publish.Result{Outcome: publish.Acked}\n",
		}},
	},
	{
		Name:  "no_attempt_header",
		Edits: []Edit{{publisher + "message.go", "headers[publish.HeaderAttempt] = int64(m.Attempt)\n", ""}},
	},
	{
		Name: "headers_lost",
		Edits: []Edit{{
			publisher + "message.go", "\tfor key, value := range m.Headers {\n\t\theaders[key] = value\n\t}\n",
			"",
		}},
	},
	{
		Name:  "send_overwrites",
		Edits: []Edit{{lua + "create.lua", "if call('EXISTS', g.record .. id) == 1 then", "if false then"}},
	},
	{
		Name: "unknown_at_limit_is_rollback",
		Edits: []Edit{{
			confirmloop + "confirm.go",
			`o.Event, o.Cause = halfmsg.EventGivenUp, "the producer answered UNKNOWN to the final question"`,
			"o.Event = halfmsg.EventRolledBack",
		}},
	},
	{
		Name: "dropped_at_limit",
		Edits: []Edit{{
			"internal/halfmsg/state.go", "{Pending, EventGivenUp, Abandoned}", "{Pending, EventGivenUp, None}",
		}},
	},
	{
		// The sixty seconds of such a system, in the measure of the rows. The sweeper takes an expiry off again, so that
		// system had no sweeper.
		Name: "pending_expires",
		Edits: []Edit{
			{
				lua + "create_paged.lua", "call('HSET', g.cells[FIRST], unpack(cells))\n",
				"call('HSET', g.cells[FIRST], unpack(cells))\n" +
					"for _, id in ipairs(g.ids) do call('PEXPIRE', g.base .. RECORD .. id, 1500) end\n",
			},
			{lua + "repair.lua", "if call('PERSIST', g.record .. id) == 1 then", "if false then"},
		},
	},
	{
		Name:  "unavailable_is_unknown",
		Edits: []Edit{{confirmloop + "confirm.go", "case verdict == halfmsg.VerdictUnavailable:", "case false:"}},
	},
	{
		Name: "unknown_is_rollback",
		Edits: []Edit{{
			calls,
			"case msghandlerv1.Verdict_VERDICT_UNKNOWN:\n\t\treturn halfmsg.VerdictUnknown, true",
			"case msghandlerv1.Verdict_VERDICT_UNKNOWN:\n\t\treturn halfmsg.VerdictRolledBack, true",
		}},
	},
	{
		Name: "no_answer_is_rollback",
		Edits: []Edit{{
			calls, "if !ok {\n\t\t\tverdict = halfmsg.VerdictUnknown",
			"if !ok {\n\t\t\tverdict = halfmsg.VerdictRolledBack",
		}},
	},
	{
		Name: "last_of_two_verdicts_wins",
		Edits: []Edit{{
			calls, "odd.contradictory++\n\t\t\tverdict = halfmsg.VerdictUnknown\n",
			"odd.contradictory++\n",
		}},
	},
	{
		Name: "later_rollback_wins",
		Edits: []Edit{{
			"internal/halfmsg/state.go", "\t{Sendable, EventAcked, Done},\n",
			"\t{Sendable, EventRollback, RolledBack},\n\t{Sendable, EventAcked, Done},\n",
		}},
	},
	{
		Name:  "submit_believed",
		Edits: []Edit{{submits + "submit.go", "if b.config.Trusted(name.Producer) {", "if true {"}},
	},
	{
		Name: "trust_remembered",
		Edits: []Edit{{
			submits + "submit.go", "b.config.Intake.SubmitTrusted, b.config.SendLease",
			"b.config.Intake.Submit, b.config.ConfirmLease",
		}},
	},
	{
		Name: "no_token_on_writes",
		Edits: []Edit{{
			lua + "move.lua", "if rule.needs_lease and (owned(g, id) ~= token or not live(due)) then", "if false then",
		}},
	},
	{
		Name: "marker_deleted_before_the_verdict",
		Edits: []Edit{{
			confirmloop + "confirm.go", "outcomes, err := q.outcomes(held)\n",
			"outcomes, err := q.outcomes(held)\n" +
				"\tfor i := range outcomes {\n" +
				"\t\tif outcomes[i].Event == halfmsg.EventCommitted {\n" +
				"\t\t\tq.confirmer.deleteMarkers(q.lane, []string{outcomes[i].ID})\n" +
				"\t\t}\n" +
				"\t}\n",
		}},
	},
	{
		Name:  "lease_never_ends",
		Edits: []Edit{{lua + "move.lua", "shift(g, s, to, id, now + hold)", "shift(g, s, to, id, now + hold + 600000)"}},
	},
	{
		Name: "copy_of_a_dead_owner_forgotten",
		Edits: []Edit{{
			lua + "claims.lua", "if s == COMMITTED then\n    call('HINCRBY', g.notes .. id, 'copies', 1)",
			"if false then\n    call('HINCRBY', g.notes .. id, 'copies', 1)",
		}},
	},
	{
		Name: "marker_taken_as_deleted",
		Edits: []Edit{{
			confirmloop + "markers.go", "err = d.config.Callbacks.DeleteBusiness(ctx, target, ids)", "err = ctx.Err()",
		}},
	},
	{
		// The sweeper removes the records that it finds, and must not look for these records.
		Name: "time_of_the_verdict_stays",
		Edits: []Edit{
			{lua + "writes.lua", "how('HDEL', g.verdicts, unpack(ids))\n", ""},
			{lua + "repair.lua", "if call('HDEL', g.verdicts, id) == 1 then", "if false then"},
		},
	},
	{
		Name: "counted_twice",
		Edits: []Edit{{
			"internal/sendloop/publish.go", "p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, n)",
			"p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, 2*n)",
		}},
	},
	{
		Name:  "duplicates_not_dropped",
		Edits: []Edit{{inboxes + "inbox.go", "case !taken:", "case !taken && key != m.Key():"}},
	},
	{
		// When a consumer dies in between, the redelivered message is dropped as a duplicate.
		Name: "inbox_before_the_effect",
		Edits: []Edit{{
			inboxes + "inbox.go", "if err := effect(ctx, tx.Tx, m); err != nil {",
			"if err := tx.Commit(); err != nil {\n\t\t\treturn err\n\t\t}\n" +
				"\t\tif tx, err = i.table.Begin(ctx, i.config.TxOptions); err != nil {\n\t\t\treturn err\n\t\t}\n" +
				"\t\tif err := effect(ctx, tx.Tx, m); err != nil {",
		}},
	},
	{
		Name: "counted_never",
		Edits: []Edit{{
			"internal/sendloop/publish.go", "p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, n)",
			"p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, 0*n)",
		}},
	},
	{
		Name: "failed_http_call_is_rollback",
		Edits: []Edit{{
			"internal/callback/http.go", "return nil, err\n\t}\n\treturn readConfirmations(body)",
			"println(err.Error())\n\t\tanswer := &msghandlerv1.ConfirmResponse{MarkerStore: r.GetMarkerStore()}\n" +
				"\t\tfor _, id := range r.GetIds() {\n" +
				"\t\t\tanswer.Confirmations = append(answer.Confirmations, &msghandlerv1.Confirmation{\n" +
				"\t\t\t\tId: id, Verdict: msghandlerv1.Verdict_VERDICT_ROLLED_BACK,\n\t\t\t})\n\t\t}\n" +
				"\t\treturn answer, nil\n\t}\n\treturn readConfirmations(body)",
		}},
	},
}
