SELECT v.version FROM {schema}.rule_version AS v
