package config

// Access says who callers are, and what they may do.
type Access struct {
	// Anonymous allows everything to callers that show nothing.
	Anonymous bool
	// Viewers, Readers, Operators and Admins are globs on typed names.
	Viewers, Readers, Operators, Admins []string
	TokenFile                           string
	OIDC                                OIDC
}

func (a *Access) keys() []Key {
	return append([]Key{
		{
			Name: "access.anonymous", Default: "false", value: flag(&a.Anonymous),
			Meaning: "Accept callers that show no certificate and no token, and allow them everything. Without it, a " +
				"coordinator that listens on an address other than the loopback needs a source of identities to start.",
		},
		{
			Name: "access.viewers", value: list(&a.Viewers, 0, checkGlob),
			Meaning: "Who may see counts and lists, without bodies: globs on typed names, such as " +
				"dns:*.ops.example.com, email:*@example.com, token:dashboard or jwt:anna. * is one label of a name.",
		},
		{
			Name: "access.readers", value: list(&a.Readers, 0, checkGlob),
			Meaning: "Who may see bodies and headers too: globs as in access.viewers.",
		},
		{
			Name: "access.operators", value: list(&a.Operators, 0, checkGlob),
			Meaning: "Who may retry messages too: globs as in access.viewers.",
		},
		{
			Name: "access.admins", value: list(&a.Admins, 0, checkGlob),
			Meaning: "Who may discard and replay messages too: globs as in access.viewers.",
		},
		{
			Name: "access.token_file", value: text(&a.TokenFile, checkFile),
			Meaning: "File with the hashes of tokens, written by msghandler token. The file is read again when it " +
				"changes.",
		},
	}, a.OIDC.keys()...)
}
