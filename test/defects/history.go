package defects

const (
	sdk        = "producer/"
	sqlMarkers = "producer/marker/sql/"
)

// ofHistory are earlier mistakes of this system, put back into the present code. The commit has ended the mistake.
var ofHistory = []Defect{
	{
		// b395810c: a slower run of the id commits, and never learns that its message is gone.
		Name: "rolled_back_marker_deleted",
		Edits: []Edit{{
			sdk + "calls.go", "\tif errors.Is(err, ErrAlreadyCommitted) {\n\t\tp.withdraw(ctx, id)",
			"\tif err == nil || errors.Is(err, ErrAlreadyCommitted) {\n\t\tp.withdraw(ctx, id)",
		}},
	},
	{
		// 0b23a37c: the lease holder asks after all.
		Name: "trusted_submit_waits_for_the_lease",
		Edits: []Edit{{
			lua + "trust.lua", "  local callers = not owner and",
			"  if owner then\n    call('HSET', g.notes .. id, 'hurry', 1)\n    return OK + s\n  end\n" +
				"  local callers = not owner and",
		}},
	},
	{
		// e9642585: a new message takes over the state, lease and verdict of a message whose record was lost.
		Name: "stale_index_inherited",
		Edits: []Edit{
			{lua + "create_paged.lua", "if refused(g) or call(", "if call("},
			{
				lua + "create.lua",
				"  if g.stale or call('MSETNX', unpack(all)) == 0 then\n    g.written = {}\n    return\n  end\n",
				"  g.stale = false\n  if call('MSETNX', unpack(all)) == 0 then\n    g.written = {}\n    return\n  end\n" +
					"  if g then\n    return\n  end\n",
			},
		},
	},
	{
		// ad7749d5: another run of the id holds the marker and commits.
		Name: "rolled_back_without_marker",
		Edits: []Edit{{
			sdk + "send.go", `		standing, err := p.giveUp(ctx, id)
		switch {
		case err == nil && standing == marker.Committed:
			_, err = p.submit(ctx, id)
			p.judgeSubmit(id, err)
			return
		case err == nil:
			err = p.rollback(ctx, id, reason)
		}
`, "\t\terr := p.rollback(ctx, id, reason)\n",
		}},
	},
	{
		// b12ace0f: the questions about a half message whose answer is on its way are used up.
		Name: "storing_is_unknown",
		Edits: []Edit{{
			sdk + "confirm.go", "q.known[id] = marker.Unavailable; found[id]", "q.known[id] = marker.Unknown; found[id]",
		}},
	},
	{
		// bd7d1444, 2c5de534: a process with another database decides about messages that name the first database.
		Name:  "other_markers_answer",
		Edits: []Edit{{sdk + "identity.go", "\tcase wanted == \"\":\n\t\treturn own,", "\tcase true:\n\t\treturn wanted,"}},
	},
	{
		// 1a8016d0: whichever database answers by then says what became of a COMMIT.
		Name: "settled_in_any_database",
		Edits: []Edit{{
			sqlMarkers + "business.go", "\tstanding, err := s.Put(ctx, []string{id}, marker.RolledBack)\n\tswitch {",
			"\ts = s.boundTo(\"\")\n\tstanding, err := s.Put(ctx, []string{id}, marker.RolledBack)\n\tswitch {",
		}},
	},
	{
		// 9d99ac47: a COMMIT whose answer is lost counts as failed.
		Name: "lost_commit_is_rollback",
		Edits: []Edit{{
			sqlMarkers + "business.go", "\tif s.table.Aborted(cause) {\n",
			"\tif cause != nil {\n\t\treturn notCommitted(fmt.Errorf(\"commit %s: %w\", id, cause))\n\t}\n" +
				"\tif s.table.Aborted(cause) {\n",
		}},
	},
	{
		// 6e074730: one held marker leaves the last question about all others of its batch without an answer.
		Name: "held_marker_hides_others",
		Edits: []Edit{{
			sqlMarkers + "store.go", "if s.table.Busy(err) && !s.table.OneWriter && len(ids) > 1 {", "if false {",
		}},
	},
	{
		// 5f6060cf: a coordinator ends whose connection is cut while it reads the settings of Redis.
		Name: "start_ends_at_a_cut",
		Edits: []Edit{{
			"internal/app/store.go", "\t\t_ = store.Close() // the cause is returned\n\t\treturn nil, err\n",
			"\t\t_ = store.Close() // the cause is returned\n\t\treturn nil, errors.New(err.Error())\n",
		}},
	},
	{
		// 189f533f: a parked message that was claimed meanwhile is due again, and has two owners.
		Name:  "parked_message_has_two_owners",
		Edits: []Edit{{lua + "due.lua", "producer and not owned and", "producer and"}},
	},
	{
		// d10982c0: what is left of a batch when its lease ends is due again at once.
		Name: "stragglers_due_at_once",
		Edits: []Edit{{
			confirmloop + "confirm.go", "if q.lane.use != quarantined || len(ending) == 0 {", "if true {",
		}},
	},
}
