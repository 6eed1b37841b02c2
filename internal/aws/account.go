package aws

import "fmt"

// Account says how the account of one cluster is reached.
type Account struct {
	// Region is the AWS region of the cluster.
	Region string
	// Profile names a profile of the shared configuration; empty means the default
	// chain: environment, default profile, container, instance.
	Profile string
	// RoleARN is assumed with the credentials of Profile when it is set.
	RoleARN string
}

// String names the account for messages: which credentials it uses.
func (a Account) String() string {
	s := "the default credentials"
	if a.Profile != "" {
		s = "profile " + a.Profile
	}
	if a.RoleARN != "" {
		s += ", role " + a.RoleARN
	}
	return s
}

// LoginCommand is what a person types to get fresh credentials for the account, in
// one line. A profile may hold an SSO session or keys, so both commands are named.
func LoginCommand(a Account) string {
	if a.Profile != "" {
		return fmt.Sprintf("aws sso login --profile %s   (a profile with keys: aws configure --profile %s)", a.Profile, a.Profile)
	}
	return "aws sso login   (credentials from the environment: export fresh AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN)"
}
