UPDATE holdfast_birth SET grace = max(grace, :grace)
