// Package policy says which names and addresses a task may reach: the words in which
// people write it, and the decision. It does no input or output, and is the same on
// the client, which checks what was written, and on the node, which decides.
//
// # Words
//
// [Parse] reads one word of `allow` or `opaque`, [ParseDeny] one of `deny`:
//
//	pypi.org                     this name, ports 443 and 80
//	*.pythonhosted.org           every name below it, not itself
//	github.com:22                the ports named, and no others
//	10.0.0.7:5432                an address; [2001:db8::7]:443 of IPv6
//	10.1.0.0/16:443              a network, a port is required; [2001:db8::/32]:443
//	@pip                         a bundle, see bundles.go
//
// A word of `deny` without ports is about all ports, and so may a network be there.
// Names are ASCII: the letters of other scripts are written as xn-- labels, because
// the table that converts them is larger than this package. That a wildcard is not
// below a public suffix is checked by package suffix, on the client alone, for the
// same reason.
//
// # Decision
//
// A [Policy] is allowed by its rules alone, and a deny wins. Its bounds are policies
// of others (project, profile, site): what one of them does not allow is refused.
// Nothing is computed from two lists, so a refusal names the policy that refused.
//
// An address of a range that [Forbidden] names is refused, also under a name that is
// allowed. A rule with the address itself opens it. A rule with a network opens the
// private and shared addresses in it when it lies wholly within such a range:
// 10.1.0.0/16:443 does, 0.0.0.0/0:443 opens none of them. Loopback, link-local and
// metadata addresses, and the machine's own, are opened one by one only.
package policy
